// Whole lines out of a stream of pieces, so that lines of different workers never mix. Pure.
#ifndef TRAINCTL_LAUNCHER_LINE_ASSEMBLER_H_
#define TRAINCTL_LAUNCHER_LINE_ASSEMBLER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// A longer line is cut into lines of this length.
inline constexpr size_t kLongestLine = size_t{64} << 10;

// What people are told where output of a rank is gone.
std::string LostOutputText(int rank, int stream, uint64_t bytes);

// One stream of one worker. A carriage return ends a line as a newline does (progress bars redraw
// theirs with it), and what it leaves empty is dropped.
class LineAssembler {
 public:
  using OnLine = absl::FunctionRef<void(absl::string_view line)>;  // without its end

  void Add(absl::string_view data, OnLine on_line);
  // The stream has ended: what is left is a line.
  void Finish(OnLine on_line);
  // What comes next is not what came after: the line that was begun will never be whole. Returns
  // the bytes of it, which nobody is shown.
  size_t Break();

 private:
  std::string partial_;
  bool after_return_ = false;  // the last character was a carriage return
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_LINE_ASSEMBLER_H_
