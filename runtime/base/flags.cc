#include "runtime/base/flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace trainctl {

struct Flags::Parser {
  CLI::App app;
};

Flags::Flags(const std::string& program, const std::string& about, const std::string& version)
    : parser_(new Parser{CLI::App(about, program)}) {
  if (!version.empty()) parser_->app.set_version_flag("--version", program + " " + version);
}
Flags::~Flags() = default;

void Flags::Add(const char* name, std::string* target, const char* value,
                const std::string& meaning) {
  CLI::Option* option = parser_->app.add_option(name, *target, meaning)->type_name(value);
  if (!target->empty()) option->capture_default_str();
}
void Flags::Add(const char* name, int* target, Range range, const std::string& meaning) {
  parser_->app.add_option(name, *target, meaning)
      ->check(CLI::Range(range.least, range.most))
      ->capture_default_str();
}
void Flags::Add(const char* name, int64_t* target, Range range, const std::string& meaning) {
  parser_->app.add_option(name, *target, meaning)
      ->check(CLI::Range(range.least, range.most))
      ->capture_default_str();
}
void Flags::Add(const char* name, uint64_t* target, const std::string& meaning) {
  parser_->app.add_option(name, *target, meaning)->capture_default_str();
}
void Flags::Add(const char* name, double* target, const std::string& meaning) {
  parser_->app.add_option(name, *target, meaning)->capture_default_str();
}
void Flags::AddChoice(const char* name, std::string* target,
                      const std::vector<std::string>& choices, const std::string& meaning) {
  parser_->app.add_option(name, *target, meaning)->check(CLI::IsMember(choices));
}
void Flags::AddSwitch(const char* name, bool* target, const std::string& meaning) {
  parser_->app.add_flag(name, *target, meaning);
}

void Flags::Require(const char* name) { parser_->app.get_option(name)->required(); }

void Flags::NeedsAll(std::initializer_list<const char*> names) {
  for (const char* one : names) {
    for (const char* other : names) {
      if (one != other) parser_->app.get_option(one)->needs(parser_->app.get_option(other));
    }
  }
}

void Flags::NotTogether(const char* one, const char* other) {
  parser_->app.get_option(one)->excludes(parser_->app.get_option(other));
}

std::optional<int> Flags::Parse(int argc, char** argv) {
  CLI::App& app = parser_->app;
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& shown) {
    app.exit(shown);
    return 0;
  } catch (const CLI::Error& error) {
    std::fprintf(stderr, "%s: %s; %s --help shows the flags\n", app.get_name().c_str(),
                 error.what(), app.get_name().c_str());
    return 2;
  }
}

}  // namespace trainctl
