// The object for which a precompiled header is made; see Precompile.cmake.
