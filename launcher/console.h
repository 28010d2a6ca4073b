// The front end's own stdout and stderr.
#ifndef TRAINCTL_LAUNCHER_CONSOLE_H_
#define TRAINCTL_LAUNCHER_CONSOLE_H_

#include "absl/strings/string_view.h"

namespace trainctl {

// Writes wait for a slow reader, but not through a signal: once one that ends the front end is
// pending (blocked, as Loop::OnSignal leaves it), and once the reader is gone, the stream is closed
// for good and later writes are dropped. Not thread-safe.
class Console {
 public:
  // Ignores SIGPIPE for the whole process.
  Console();

  void Out(absl::string_view data) { Write(1, data, &out_open_); }
  void Err(absl::string_view data) { Write(2, data, &err_open_); }

  bool out_is_terminal() const { return out_is_terminal_; }
  bool err_is_terminal() const { return err_is_terminal_; }
  bool colour() const { return colour_; }  // on stderr
  int columns() const;                     // of the terminal on stderr; 80 if unknown
  // errno of the first write of this process to stdout that failed for another reason than a reader
  // that went away; 0: none.
  static int out_error() { return out_error_; }
  // The reader of stdout went away: a closed pipe or terminal.
  bool reader_gone() const { return reader_gone_; }

 private:
  void Write(int fd, absl::string_view data, bool* open);

  bool out_is_terminal_ = false;
  bool err_is_terminal_ = false;
  bool colour_ = false;
  bool out_open_ = true;
  bool err_open_ = true;
  bool reader_gone_ = false;
  static int out_error_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_CONSOLE_H_
