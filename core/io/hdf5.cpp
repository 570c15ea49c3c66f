#include "core/io/hdf5.hpp"

#include <algorithm>

namespace minipipe::core::hdf5 {

namespace {

herr_t keep_innermost(unsigned, const H5E_error2_t* entry, void* text) {
  auto& result = *static_cast<std::string*>(text);
  if (result.empty() && entry->desc != nullptr) result = entry->desc;
  return 0;
}

herr_t collect_name(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

herr_t collect_attribute(hid_t, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

Handle dataspace(const std::vector<hsize_t>& shape) {
  const hid_t id =
      shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  return {id, H5Sclose};
}

Handle parents_made() {
  Handle list(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(list.get(), 1);
  return list;
}

}  // namespace

void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

std::string reason() {
  std::string text;
  // Upward starts at the call that met the error.
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  return text.empty() ? "unknown HDF5 error" : text;
}

void fail(const std::filesystem::path& file, const std::string& what) {
  throw RunError(file.string() + ": " + what + ": " + reason());
}

Handle string_type(std::size_t length) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), std::max<std::size_t>(length, 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

File File::open(const std::filesystem::path& path, bool write) {
  silence();
  const hid_t id = H5Fopen(path.c_str(), write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, H5P_DEFAULT);
  if (id < 0) fail(path, "cannot open");
  return {path, id};
}

File File::create(const std::filesystem::path& path) {
  silence();
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  if (id < 0) fail(path, "cannot create");
  return {path, id};
}

void File::close() {
  if (handle_.reset() < 0) fail(path_, "cannot flush and close");
}

bool File::has(const std::string& name) const {
  if (name == "/") return true;
  for (std::size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    if (H5Lexists(id(), name.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

std::vector<std::string> File::names(const std::string& group) const {
  std::vector<std::string> result;
  if (!has(group)) return result;
  const Handle handle = open_group(group);
  check(H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &result), "list", group);
  std::sort(result.begin(), result.end());
  return result;
}

Handle File::open_group(const std::string& name) const {
  return {check(H5Gopen2(id(), name.c_str(), H5P_DEFAULT), "open group", name), H5Gclose};
}

Handle File::make_group(const std::string& name) const {
  if (has(name)) return open_group(name);
  const Handle links = parents_made();
  return {check(H5Gcreate2(id(), name.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT), "make group", name), H5Gclose};
}

Handle File::open_dataset(const std::string& name) const {
  return {check(H5Dopen2(id(), name.c_str(), H5P_DEFAULT), "open dataset", name), H5Dclose};
}

std::vector<hsize_t> File::shape(const std::string& dataset) const {
  const Handle handle = open_dataset(dataset);
  const Handle space(check(H5Dget_space(handle.get()), "read the shape of", dataset), H5Sclose);
  std::vector<hsize_t> result(
      static_cast<std::size_t>(check(H5Sget_simple_extent_ndims(space.get()), "read the shape of", dataset)));
  check(H5Sget_simple_extent_dims(space.get(), result.data(), nullptr), "read the shape of", dataset);
  return result;
}

std::size_t File::element_count(const std::vector<hsize_t>& shape) {
  std::size_t count = 1;
  for (const hsize_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

void File::write_raw(const std::string& name, const std::vector<hsize_t>& shape, hid_t type, const void* values) const {
  const Handle space = dataspace(shape);
  const Handle links = parents_made();
  const Handle dataset(
      check(H5Dcreate2(id(), name.c_str(), type, space.get(), links.get(), H5P_DEFAULT, H5P_DEFAULT), "make dataset", name),
      H5Dclose);
  check(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write dataset", name);
}

void File::read_raw(const std::string& name, hid_t type, void* values) const {
  const Handle dataset = open_dataset(name);
  check(H5Dread(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "read dataset", name);
}

void File::append_raw(const std::string& name, hid_t type, const void* values, hsize_t count) const {
  Handle dataset;
  hsize_t before = 0;
  if (has(name)) {
    before = element_count(shape(name));
    dataset = open_dataset(name);
  } else {
    const hsize_t none = 0;
    const hsize_t unlimited = H5S_UNLIMITED;
    const hsize_t chunk = 1024;
    const Handle space(H5Screate_simple(1, &none, &unlimited), H5Sclose);
    const Handle links = parents_made();
    const Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(layout.get(), 1, &chunk);
    dataset = Handle(
        check(H5Dcreate2(id(), name.c_str(), type, space.get(), links.get(), layout.get(), H5P_DEFAULT), "make dataset", name),
        H5Dclose);
  }
  if (count == 0) return;
  const hsize_t after = before + count;
  check(H5Dset_extent(dataset.get(), &after), "extend dataset", name);
  const Handle space(check(H5Dget_space(dataset.get()), "extend dataset", name), H5Sclose);
  const Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
  check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &before, nullptr, &count, nullptr), "extend dataset", name);
  check(H5Dwrite(dataset.get(), type, memory.get(), space.get(), H5P_DEFAULT, values), "append to dataset", name);
}

void File::shrink(const std::string& name, hsize_t count) const {
  const Handle dataset = open_dataset(name);
  check(H5Dset_extent(dataset.get(), &count), "shrink dataset", name);
}

void File::set_raw(const std::string& object, const std::string& key, hid_t type, const void* value) const {
  const std::string label = object + " attribute " + key;
  const Handle owner(check(H5Oopen(id(), object.c_str(), H5P_DEFAULT), "open", object), H5Oclose);
  if (H5Aexists(owner.get(), key.c_str()) > 0) check(H5Adelete(owner.get(), key.c_str()), "replace", label);
  const Handle space = dataspace({});
  const Handle attribute(
      check(H5Acreate2(owner.get(), key.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT), "make", label), H5Aclose);
  check(H5Awrite(attribute.get(), type, value), "write", label);
}

void File::set(const std::string& object, const std::string& key, const std::string& value) const {
  const Handle type = string_type(value.size());
  set_raw(object, key, type.get(), value.c_str());
}

void File::get_raw(const std::string& object, const std::string& key, hid_t type, void* value) const {
  const std::string label = object + " attribute " + key;
  const Handle attribute(check(H5Aopen_by_name(id(), object.c_str(), key.c_str(), H5P_DEFAULT, H5P_DEFAULT), "open", label),
                         H5Aclose);
  check(H5Aread(attribute.get(), type, value), "read", label);
}

std::string File::get_text(const std::string& object, const std::string& key) const {
  const std::string label = object + " attribute " + key;
  const Handle attribute(check(H5Aopen_by_name(id(), object.c_str(), key.c_str(), H5P_DEFAULT, H5P_DEFAULT), "open", label),
                         H5Aclose);
  const Handle stored(check(H5Aget_type(attribute.get()), "read", label), H5Tclose);
  if (H5Tget_class(stored.get()) != H5T_STRING || H5Tis_variable_str(stored.get()) > 0) {
    throw RunError(path_.string() + ": " + label + " is not a fixed-length string");
  }
  std::string text(H5Tget_size(stored.get()), '\0');
  check(H5Aread(attribute.get(), stored.get(), text.data()), "read", label);
  text.resize(std::min(text.size(), text.find('\0')));  // an empty string is stored as one padding byte
  return text;
}

bool File::has_attribute(const std::string& object, const std::string& key) const {
  return H5Aexists_by_name(id(), object.c_str(), key.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> File::attribute_names(const std::string& object) const {
  std::vector<std::string> result;
  const Handle owner(check(H5Oopen(id(), object.c_str(), H5P_DEFAULT), "open", object), H5Oclose);
  check(H5Aiterate2(owner.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_attribute, &result), "list attributes of",
        object);
  return result;
}

}  // namespace minipipe::core::hdf5
