#include "launcher/line_assembler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainctl {

std::string LostOutputText(int rank, int stream, uint64_t bytes) {
  return absl::StrCat("rank ", rank, ": ", bytes, " bytes of its ",
                      stream == 2 ? "stderr" : "stdout",
                      " are gone: the logs are longer than --log-quota, or somebody cut them");
}

void LineAssembler::Add(absl::string_view data, OnLine on_line) {
  while (!data.empty()) {
    const size_t end = data.find_first_of("\r\n");
    const size_t room = kLongestLine - partial_.size();
    if (std::min(end, data.size()) > room) {
      partial_.append(data.data(), room);
      on_line(partial_);
      partial_.clear();
      data.remove_prefix(room);
      continue;
    }
    if (end == absl::string_view::npos) {
      partial_.append(data.data(), data.size());
      after_return_ = false;
      return;
    }
    const bool is_return = data[end] == '\r';
    // The newline of "\r\n" ends nothing of its own, and a return after nothing redraws nothing.
    const bool empty = end == 0 && partial_.empty();
    const bool dropped = empty && (is_return || after_return_);
    if (!dropped && partial_.empty()) {
      on_line(data.substr(0, end));
    } else if (!dropped) {
      partial_.append(data.data(), end);
      on_line(partial_);
      partial_.clear();
    }
    after_return_ = is_return;
    data.remove_prefix(end + 1);
  }
}

size_t LineAssembler::Break() {
  const size_t dropped = partial_.size();
  partial_.clear();
  after_return_ = false;
  return dropped;
}

void LineAssembler::Finish(OnLine on_line) {
  if (!partial_.empty()) {
    on_line(partial_);
    partial_.clear();
  }
  after_return_ = false;
}

}  // namespace trainctl
