#pragma once

#include <array>
#include <cstddef>

namespace minipipe::core {

// Which layers the two buffers of gathered weights have, or will have: layer l is gathered in buffer l % 2.
class GatheredLayers {
 public:
  // What has to be gathered when a pass asks for `layer`, and for `next` after it (-1: nothing): the layer, and the next one
  // ahead if it does not go to the same buffer. gather(layer, replaced) for each that its buffer does not have; replaced: the
  // layer that the buffer had, -1: none.
  template <class Gather>
  void fetch(int layer, int next, const Gather& gather) {
    put(layer, gather);
    if (next >= 0 && next % 2 != layer % 2) put(next, gather);
  }

  // The weights have changed, or the buffers are used for something else.
  void forget() { layers_ = {-1, -1}; }

  // By buffer; -1: none.
  const std::array<int, 2>& layers() const { return layers_; }

 private:
  template <class Gather>
  void put(int layer, const Gather& gather) {
    int& here = layers_[static_cast<std::size_t>(layer % 2)];
    if (here == layer) return;
    const int replaced = here;
    here = layer;
    gather(layer, replaced);
  }

  std::array<int, 2> layers_{-1, -1};
};

}  // namespace minipipe::core
