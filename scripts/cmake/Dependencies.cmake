# Third-party libraries, each found once. Debian package names are in scripts/packages.txt.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
# Its functions are loaded at run time, where there is a systemd (runtime/node/libsystemd.h).
find_path(SYSTEMD_INCLUDE_DIR systemd/sd-bus.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
find_library(GLOO_LIBRARY gloo PATHS /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu REQUIRED)
find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread REQUIRED)
find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES x86_64-linux-gnu aarch64-linux-gnu openblas-pthread
          x86_64-linux-gnu/openblas-pthread REQUIRED)

# gRPC and abseil are linked statically where their archives exist: a process that links gRPC
# dynamically needs 10 ms before main, one that links it statically 3 ms, and a launch starts
# three of them in a row.
file(GLOB absl_archives /usr/lib/*-linux-gnu/libabsl_*.a)
find_library(GRPC_ARCHIVE libgrpc.a)
add_library(trainctl_absl INTERFACE)
add_library(trainctl_grpc INTERFACE)
add_library(trainctl_protobuf INTERFACE)
# Sanitizers take the shared libraries: only whole modules can be told apart as not instrumented.
if(absl_archives AND GRPC_ARCHIVE AND NOT TRAINCTL_SANITIZE)
  # Archives that need each other. A group is one item to CMake, which would otherwise drop the
  # second of two equal flags and so tear the group apart.
  list(JOIN absl_archives "," absl_group)
  target_link_libraries(trainctl_absl INTERFACE "$<LINK_GROUP:RESCAN,${absl_group}>" Threads::Threads)
  set(archives)
  foreach(name protobuf grpc++ grpc gpr address_sorting upb re2 cares)
    find_library(${name}_ARCHIVE lib${name}.a REQUIRED)
    list(APPEND archives ${${name}_ARCHIVE})
  endforeach()
  find_library(SYSTEMD_LIBRARY systemd REQUIRED)
  list(POP_FRONT archives protobuf_archive)
  target_link_libraries(trainctl_protobuf INTERFACE ${protobuf_archive} ZLIB::ZLIB Threads::Threads)
  list(APPEND archives ${absl_archives})
  list(JOIN archives "," grpc_group)
  target_link_libraries(trainctl_grpc INTERFACE "$<LINK_GROUP:RESCAN,${grpc_group}>"
    trainctl_protobuf OpenSSL::SSL OpenSSL::Crypto ${SYSTEMD_LIBRARY} ZLIB::ZLIB Threads::Threads dl)
  add_library(trainctl_re2 INTERFACE)
  target_link_libraries(trainctl_re2 INTERFACE trainctl_grpc)  # it is in gRPC's group
else()
  find_package(gRPC CONFIG REQUIRED)
  find_package(absl CONFIG REQUIRED)
  target_link_libraries(trainctl_absl INTERFACE absl::status absl::statusor absl::strings absl::str_format
    absl::time absl::flat_hash_map absl::any_invocable absl::cord Threads::Threads)
  target_link_libraries(trainctl_protobuf INTERFACE protobuf::libprotobuf)
  target_link_libraries(trainctl_grpc INTERFACE gRPC::grpc++)
  find_library(RE2_LIBRARY re2 REQUIRED)
  add_library(trainctl_re2 INTERFACE)
  target_link_libraries(trainctl_re2 INTERFACE ${RE2_LIBRARY})
  set(TRAINCTL_GRPC_SHARED ON)
  # gRPC's package sets it for whoever links gRPC; a precompiled header serves only sources that are
  # compiled with the same flags.
  target_compile_options(trainctl_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-pthread>)
endif()
