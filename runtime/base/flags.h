// Parsing of the flags of a program other than trainctl. Header only: who includes it links CLI11.
#ifndef TRAINCTL_RUNTIME_BASE_FLAGS_H_
#define TRAINCTL_RUNTIME_BASE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>

namespace trainctl {

// nullopt: go on. Else the status to end with: 0 after --help or --version, 2 after wrong use,
// which is told on stderr. REQUIRES: `app` has the program's name.
inline std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
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

#endif  // TRAINCTL_RUNTIME_BASE_FLAGS_H_
