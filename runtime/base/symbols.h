// Functions of a library that is opened at run time, because it is not there on every machine.
#ifndef TRAINCTL_RUNTIME_BASE_SYMBOLS_H_
#define TRAINCTL_RUNTIME_BASE_SYMBOLS_H_

#include <dlfcn.h>

#include <string>

namespace trainctl {

class Symbols {
 public:
  // `library` is dlopen's and stays open.
  explicit Symbols(void* library) : library_(library) {}

  // Null if the library has no such function.
  template <typename F>
  void Optional(const char* name, F** function) {
    *function = reinterpret_cast<F*>(::dlsym(library_, name));
  }
  template <typename F>
  void Required(const char* name, F** function) {
    Optional(name, function);
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  // The first required one that is not there; empty: all are.
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_SYMBOLS_H_
