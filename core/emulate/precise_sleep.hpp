#pragma once

namespace minipipe::core {

// Sleeps for `seconds`, to within some microseconds on an idle core: the kernel sleeps until shortly before the deadline, the
// rest is polled. Leaves the core to others for all but the last 50 us.
void precise_sleep(double seconds);

}  // namespace minipipe::core
