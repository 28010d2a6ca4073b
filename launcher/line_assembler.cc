#include "launcher/line_assembler.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace trainctl {

std::string LostOutputText(int rank, int stream, uint64_t bytes) {
  return absl::StrCat("rank ", rank, ": ", bytes, " bytes of its ",
                      stream == 2 ? "stderr" : "stdout",
                      " are gone: the logs are longer than --log-quota, or somebody cut them");
}

void LineAssembler::Add(absl::string_view data, OnLine on_line) {
  std::optional<size_t> newline;  // where the first one is, or the end of `data`
  while (!data.empty()) {
    if (!newline.has_value()) newline = std::min(data.find('\n'), data.size());
    const size_t room = kLongestLine - partial_.size();
    const size_t line = std::min(*newline, room + 1);
    const size_t end = std::min(data.substr(0, line).find('\r'), line);
    if (end > room) {
      partial_.append(data.data(), room);
      on_line(partial_);
      partial_.clear();
      data.remove_prefix(room);
      *newline -= room;
      continue;
    }
    if (end == data.size()) {
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
    if (is_return) {
      *newline -= end + 1;
    } else {
      newline.reset();
    }
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
