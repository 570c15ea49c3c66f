#pragma once

namespace minipipe::app {

// Where standard input, output or error is closed, the first files and pipes that are opened would get their numbers, and what
// is printed would go there: into MPI's own pipes, until they are full. Opens /dev/null in their places, such that to read or
// to print still fails. To be called before anything else.
void occupy_standard_streams();

// From now on to print into a pipe that nobody reads any more is a failed write as into a full disk, not the end of the
// process: what a long run computes is worth more than what it prints.
void survive_broken_pipes();

}  // namespace minipipe::app
