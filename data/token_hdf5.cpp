// The HDF5 form of a token file, read.
#include <vector>

#include "data/token_contents.hpp"
#include "schedules/error.hpp"

namespace minipipe::data {
namespace {

constexpr std::int64_t cached_bytes = std::int64_t{1} << 30;
constexpr std::int64_t known_version = 1;

// A root attribute read as text, if it is there and is text.
std::optional<std::string> text_attribute(hid_t file, const char* name) {
  if (H5Aexists(file, name) <= 0) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(file, name, H5P_DEFAULT), H5Aclose, "opening an attribute");
  const Hdf5Handle type(H5Aget_type(attribute.id()), H5Tclose, "reading an attribute's type");
  if (H5Tget_class(type.id()) != H5T_STRING) return std::nullopt;
  const Hdf5Handle memory(H5Tcopy(type.id()), H5Tclose, "copying a type");
  if (H5Tis_variable_str(type.id()) > 0) {
    char* value = nullptr;
    check_hdf5(H5Aread(attribute.id(), memory.id(), &value), "reading an attribute");
    std::string text = value == nullptr ? "" : value;
    H5free_memory(value);
    return text;
  }
  std::string text(H5Tget_size(type.id()), '\0');
  check_hdf5(H5Aread(attribute.id(), memory.id(), text.data()), "reading an attribute");
  text.resize(std::char_traits<char>::length(text.c_str()));
  return text;
}

// A scalar numeric root attribute converted to the given native type, if it is there.
template <class Value>
std::optional<Value> number_attribute(hid_t file, const char* name, hid_t native) {
  if (H5Aexists(file, name) <= 0) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(file, name, H5P_DEFAULT), H5Aclose, "opening an attribute");
  const Hdf5Handle space(H5Aget_space(attribute.id()), H5Sclose, "reading an attribute's size");
  Value value{};
  if (H5Sget_simple_extent_npoints(space.id()) != 1 || H5Aread(attribute.id(), native, &value) < 0) return std::nullopt;
  return value;
}

}  // namespace

void TokenFile::Contents::open_hdf5() {
  const Hdf5Quiet quiet;
  format = TokenFormat::hdf5;
  const std::string again = "; make it again with 'minipipe prepare --force'";
  const hid_t opened = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (opened < 0) {
    throw InputError(where() +
                     " begins like an HDF5 file, but HDF5 cannot open it: truncated or damaged, or open for writing elsewhere" +
                     again + " (on file systems without locks set HDF5_USE_FILE_LOCKING=FALSE)");
  }
  file = Hdf5Handle(opened, H5Fclose, "opening");
  if (const auto stated = text_attribute(opened, "format"); stated && *stated != "minipipe tokens") {
    throw InputError(where() + " is an HDF5 file of another kind: its attribute 'format' is '" + *stated +
                     "', not 'minipipe tokens'; give a file made by 'minipipe prepare'");
  }
  if (const auto version = number_attribute<std::int64_t>(opened, "version", H5T_NATIVE_INT64);
      version && *version != known_version) {
    throw InputError(where() + " has version " + std::to_string(*version) +
                     " of the token file format, this program reads version " + std::to_string(known_version) + again);
  }
  if (H5Lexists(opened, "tokens", H5P_DEFAULT) <= 0) {
    throw InputError(where() +
                     " is an HDF5 file without a dataset /tokens, so not a token file; give a file made by 'minipipe prepare'");
  }
  const hid_t found = H5Dopen2(opened, "tokens", H5P_DEFAULT);
  if (found < 0) throw InputError(where() + ": /tokens is not a dataset; give a file made by 'minipipe prepare'");
  dataset = Hdf5Handle(found, H5Dclose, "opening /tokens");

  const Hdf5Handle type(H5Dget_type(found), H5Tclose, "reading the type of /tokens");
  const Hdf5Handle space(H5Dget_space(found), H5Sclose, "reading the size of /tokens");
  width = static_cast<int>(H5Tget_size(type.id()));
  const bool unsigned_integer = H5Tget_class(type.id()) == H5T_INTEGER && H5Tget_sign(type.id()) == H5T_SGN_NONE;
  if (!unsigned_integer || (width != 1 && width != 2 && width != 4) || H5Sget_simple_extent_ndims(space.id()) != 1) {
    throw InputError(where() + ": /tokens must be a 1-D dataset of uint8, uint16 or uint32 ids, and is not; with h5py, write " +
                     "numpy.asarray(ids, 'uint16')");
  }
  size = static_cast<std::int64_t>(H5Sget_simple_extent_npoints(space.id()));
  if (size == 0) throw InputError(where() + " is empty: its dataset /tokens holds no token" + again);
  if (const auto stated = number_attribute<std::int64_t>(opened, "vocab", H5T_NATIVE_INT64); stated && *stated > vocab) {
    throw InputError(where() + " was made with a vocabulary of " + std::to_string(*stated) +
                     ", more than model.vocab = " + std::to_string(vocab) + "; set model.vocab to at least that");
  }
  entropy = number_attribute<double>(opened, "entropy", H5T_NATIVE_DOUBLE);

  if (size * width >= cached_bytes) return;
  owned.resize(static_cast<std::size_t>(size * width));
  const hid_t native = width == 1 ? H5T_NATIVE_UINT8 : width == 2 ? H5T_NATIVE_UINT16 : H5T_NATIVE_UINT32;
  if (H5Dread(found, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, owned.data()) < 0) {
    throw InputError(where() + ": /tokens cannot be read, the file is damaged" + again);
  }
  ids = owned.data();
  dataset.close("/tokens of '" + path + "'");
  file.close("'" + path + "'");
}

}  // namespace minipipe::data
