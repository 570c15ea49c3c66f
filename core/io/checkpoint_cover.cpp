#include "core/io/checkpoint_cover.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "core/io/checkpoint_format.hpp"
#include "schedules/error.hpp"

namespace minipipe::core::checkpoint {

namespace {

// Lists as bytes between ranks of one program: numbers as they lie in memory, strings with their length in front.
class Packer {
 public:
  void add(std::uint64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(const std::string& text) {
    add(text.size());
    bytes_ += text;
  }
  void add(const std::vector<hsize_t>& shape) {
    add(shape.size());
    for (const hsize_t extent : shape) add(extent);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  bool done() const { return position_ == bytes_.size(); }
  std::uint64_t number() {
    std::uint64_t number = 0;
    std::memcpy(&number, bytes_.data() + position_, sizeof number);
    position_ += sizeof number;
    return number;
  }
  std::string text() {
    const std::size_t length = number();
    position_ += length;
    return bytes_.substr(position_ - length, length);
  }
  std::vector<hsize_t> shape() {
    std::vector<hsize_t> result(number());
    for (hsize_t& extent : result) extent = number();
    return result;
  }

 private:
  const std::string& bytes_;
  std::size_t position_ = 0;
};

struct Given {
  int rank = 0;
  Rectangle rectangle;
};

// A dataset and who gives what of it.
struct Plan {
  std::string tensor;
  std::vector<hsize_t> shape;
  int rank = 0;  // who named it first
  std::vector<Given> pieces;
};

std::string pack(const std::vector<TensorPart>& parts) {
  Packer packer;
  for (const TensorPart& part : parts) {
    packer.add(part.name);
    packer.add(static_cast<std::uint64_t>(part.field));
    packer.add(part.shape);
    for (const hsize_t number : {part.rectangle.row, part.rectangle.column, part.rectangle.rows, part.rectangle.columns}) {
      packer.add(number);
    }
  }
  return packer.bytes();
}

std::map<std::string, Plan> plans_of(const std::vector<std::string>& lists) {
  std::map<std::string, Plan> plans;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (Unpacker list(lists[rank]); !list.done();) {
      const int giver = static_cast<int>(rank);
      const std::string tensor = list.text();
      const std::string dataset = dataset_name(tensor, static_cast<TensorField>(list.number()));
      const std::vector<hsize_t> shape = list.shape();
      Rectangle rectangle;
      for (hsize_t* number : {&rectangle.row, &rectangle.column, &rectangle.rows, &rectangle.columns}) *number = list.number();
      const Plan& plan = plans.try_emplace(dataset, Plan{tensor, shape, giver, {}}).first->second;
      if (plan.shape != shape) {
        throw RunError(dataset + " has shape " + shape_text(plan.shape) + " on rank " + std::to_string(plan.rank) + ", " +
                       shape_text(shape) + " on rank " + std::to_string(rank));
      }
      if (rectangle.floats() > 0) plans.at(dataset).pieces.push_back({giver, rectangle});
    }
  }
  return plans;
}

void require_once(const std::string& dataset, Plan& plan) {
  std::vector<Given>& pieces = plan.pieces;
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Given& a, const Given& b) { return a.rectangle.row < b.rectangle.row; });
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Rectangle& a = pieces[i].rectangle;
    given += a.floats();
    for (std::size_t j = i + 1; j < pieces.size() && pieces[j].rectangle.row < a.row + a.rows; ++j) {
      const Rectangle& b = pieces[j].rectangle;
      if (b.column >= a.column + a.columns || a.column >= b.column + b.columns) continue;
      throw RunError(dataset + ": row " + std::to_string(b.row) + ", column " + std::to_string(std::max(a.column, b.column)) +
                     " is given by rank " + std::to_string(pieces[i].rank) + " and by rank " + std::to_string(pieces[j].rank));
    }
  }
  const std::uint64_t all = hdf5::File::element_count(plan.shape);
  if (given != all) {
    throw RunError(dataset + ": " + std::to_string(all - given) + " of " + std::to_string(all) +
                   " elements are given by no rank");
  }
}

}  // namespace

std::vector<Dataset> agree_on_datasets(const Ranks& ranks, const std::vector<TensorPart>& mine) {
  ranks.together([&mine] {
    for (const TensorPart& part : mine) require_valid(part);
  });
  const std::vector<std::string> lists = ranks.gather(pack(mine));
  Packer agreed;
  ranks.together([&] {
    std::map<std::string, Plan> plans = plans_of(lists);
    for (auto& [dataset, plan] : plans) {
      require_once(dataset, plan);
      if (plans.count(model_name(plan.tensor)) == 0) throw RunError(dataset + " is given, but not the tensor's value");
      agreed.add(dataset);
      agreed.add(plan.shape);
    }
  });
  const std::string bytes = ranks.broadcast(agreed.bytes());
  std::vector<Dataset> result;
  for (Unpacker list(bytes); !list.done();) {
    Dataset& dataset = result.emplace_back();
    dataset.name = list.text();
    dataset.shape = list.shape();
  }
  return result;
}

}  // namespace minipipe::core::checkpoint
