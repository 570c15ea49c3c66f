#include "data/content.hpp"

#include <array>
#include <string_view>

namespace minipipe::data {
namespace {

using std::string_view_literals::operator""sv;

struct Magic {
  std::string_view bytes;
  const char* kind;
};

constexpr std::array magics = {
    Magic{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    Magic{"\x1f\x8b"sv, "a gzip file"},
    Magic{"\x28\xb5\x2f\xfd"sv, "a zstd file"},
    Magic{"\xfd"
          "7zXZ\0"sv,
          "an xz file"},
    Magic{"BZh"sv, "a bzip2 file"},
    Magic{"PK\x03\x04"sv, "a zip file"},
    Magic{"\x89PNG\r\n\x1a\n"sv, "a PNG image"},
    Magic{"\xff\xd8\xff"sv, "a JPEG image"},
    Magic{"%PDF-"sv, "a PDF file"},
    Magic{"\x93NUMPY"sv, "a NumPy .npy file"},
    Magic{"PAR1"sv, "a Parquet file"},
    Magic{"\x7f"
          "ELF"sv,
          "a program"},
};

// Valid UTF-8 without control characters other than white space; a sequence cut off by the end of the bytes is allowed.
bool is_text(const unsigned char* head, std::size_t size) {
  std::size_t i = 0;
  while (i < size) {
    const unsigned char c = head[i++];
    if (c < 0x20 ? !(c == '\t' || c == '\n' || c == '\r' || c == '\f') : c == 0x7f) return false;
    if (c < 0x80) continue;
    int follow = 0;
    if (c >= 0xc2 && c <= 0xdf) {
      follow = 1;
    } else if (c >= 0xe0 && c <= 0xef) {
      follow = 2;
    } else if (c >= 0xf0 && c <= 0xf4) {
      follow = 3;
    } else {
      return false;
    }
    for (; follow > 0 && i < size; --follow) {
      if ((head[i++] & 0xc0) != 0x80) return false;
    }
  }
  return size > 0;
}

}  // namespace

std::string kind_of_content(const unsigned char* head, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(head), size);
  for (const Magic& magic : magics) {
    if (bytes.substr(0, magic.bytes.size()) == magic.bytes) return magic.kind;
  }
  return is_text(head, size) ? "text" : "";
}

std::string remedy_for_kind(const std::string& kind, const std::string& path) {
  if (kind == "text") return "make token files of it with 'minipipe prepare --text " + path + " --out FOLDER'";
  if (kind == "a gzip file")
    return "decompress it ('gzip -dc " + path +
           " > FILE') and, if it holds text, run 'minipipe prepare --text FILE --out FOLDER'";
  if (kind == "a zstd file" || kind == "an xz file" || kind == "a bzip2 file" || kind == "a zip file") {
    return "unpack it and, if it holds text, run 'minipipe prepare --text FILE --out FOLDER'";
  }
  if (kind == "a NumPy .npy file") return "write the ids with array.astype('uint16').tofile(FILE), which adds no header";
  return "give a token file made by 'minipipe prepare', nanoGPT or llm.c";
}

}  // namespace minipipe::data
