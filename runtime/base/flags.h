// Flags of a program other than trainctl. The parser behind it (CLI11) takes longer to compile than
// most programs, so it is included in one place, and only for what these programs need.
#ifndef TRAINCTL_RUNTIME_BASE_FLAGS_H_
#define TRAINCTL_RUNTIME_BASE_FLAGS_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainctl {

class Flags {
 public:
  // `about` is what --help shows first; an empty `version`: there is no --version.
  Flags(const std::string& program, const std::string& about, const std::string& version = "");
  ~Flags();

  // --NAME with a value of this type, whose value before Parse is the default. Targets must live
  // until Parse. `value` names it in --help ("PATH").
  struct Range {
    int64_t least, most;
  };
  static constexpr Range kDescriptors{0, 1 << 20};
  void Add(const char* name, std::string* target, const char* value, const std::string& meaning);
  void Add(const char* name, int* target, Range range, const std::string& meaning);
  void Add(const char* name, int64_t* target, Range range, const std::string& meaning);
  void Add(const char* name, uint64_t* target, const std::string& meaning);
  void Add(const char* name, double* target, const std::string& meaning);
  void AddChoice(const char* name, std::string* target, const std::vector<std::string>& choices,
                 const std::string& meaning);
  void AddSwitch(const char* name, bool* target, const std::string& meaning);

  void Require(const char* name);
  void NeedsAll(std::initializer_list<const char*> names);  // all of these or none
  void NotTogether(const char* one, const char* other);

  // nullopt: go on. Else the status to end with: 0 after --help or --version, 2 after wrong use,
  // which is told on stderr.
  std::optional<int> Parse(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_FLAGS_H_
