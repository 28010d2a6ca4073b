"""Which folder may include which, and what the pure parts may not include."""

import re

# Folder of the tree -> folders whose headers it may include, besides its own. A folder belongs to
# the longest key that is a prefix of its path.
ALLOWED = {
    "kernels": {"runtime/base", "runtime/device"},
    "launcher": {"runtime/base", "runtime/json", "runtime/yaml", "runtime/rpc", "runtime/topology",
                 "runtime/checkpoint", "runtime/security", "runtime/telemetry",
                 "launcher/coordinator", "proto"},
    "launcher/coordinator": {"runtime/base", "runtime/json"},
    "runtime/base": set(),
    "runtime/bench": {"runtime/base", "runtime/local", "runtime/device", "runtime/worker",
                      "runtime/nccl"},
    "runtime/checkpoint": {"runtime/base", "runtime/json"},
    "runtime/device": {"runtime/base"},
    "runtime/json": set(),
    "runtime/local": {"runtime/base"},
    "runtime/nccl": {"runtime/base", "runtime/local", "runtime/device", "runtime/worker"},
    "runtime/node": {"runtime/base", "runtime/json", "runtime/local", "runtime/rpc", "runtime/topology",
                     "runtime/checkpoint", "runtime/security", "runtime/telemetry",
                     "launcher/coordinator", "proto"},
    "runtime/preflight": {"runtime/base", "runtime/json", "runtime/local", "runtime/device", "runtime/worker",
                          "runtime/nccl"},
    "runtime/rpc": {"runtime/base", "runtime/security"},
    "runtime/security": {"runtime/base"},
    "runtime/supervisor": {"runtime/base", "runtime/local"},
    "runtime/telemetry": {"runtime/base"},
    "runtime/topology": {"runtime/base", "runtime/json", "runtime/yaml"},
    "runtime/trainer": {"runtime/base", "runtime/json", "runtime/local", "runtime/checkpoint", "runtime/telemetry",
                        "runtime/worker", "runtime/device", "runtime/nccl", "kernels"},
    "runtime/worker": {"runtime/base", "runtime/json", "runtime/local", "runtime/checkpoint", "runtime/telemetry",
                       "kernels"},
    "runtime/yaml": {"runtime/base"},
}

PURE = [
    r"launcher/coordinator/.*",
    r"launcher/(hosts|journal_format|output_flow|preflight_findings|schedulers|store)\.(h|cc)",
    r"runtime/node/node_state\.(h|cc)",
    r"runtime/supervisor/slot\.(h|cc)",
    r"runtime/topology/(transport_plan|plan_.*|pci_path|cpu_list|gpu_binding|worker_binding|fitness|xid)\.(h|cc)",
]
# Header -> what it brings into a part that must be a function of its arguments.
IMPURE = [
    (r"<(ctime|time\.h|sys/time\.h)>|\"runtime/base/clock\.h\"|\"absl/time/clock\.h\"|<chrono>", "a clock"),
    (r"<(thread|mutex|shared_mutex|condition_variable|future|atomic|stop_token|pthread\.h)>"
     r"|\"absl/synchronization/.*\"|\"runtime/base/loop\.h\"", "a thread"),
    (r"<(fstream|iostream|filesystem|cstdio|stdio\.h|unistd\.h|fcntl\.h|sys/(stat|mman|file|epoll)\.h)>"
     r"|\"runtime/base/(file|fd|log|program|places)\.h\"", "files"),
    (r"<(sys/(socket|un)\.h|netdb\.h|netinet/.*|arpa/.*)>|\"runtime/rpc/.*\"|<grpc.*>", "sockets"),
    (r"<random>|\"absl/random/.*\"", "a randomness device"),
    (r"<unordered_(map|set)>|\"absl/container/(flat|node)_hash_.*\"", "unordered iteration"),
]
IMPURE_CALL = re.compile(r"\b(getenv|secure_getenv|clock_gettime|gettimeofday)\s*\(|\b\w*clock::now\(")
# Types of time without a clock; the one place that may name <chrono>.
TIME_TYPES = "runtime/base/time.h"

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.MULTILINE)


def includes_of(text):
    return _INCLUDE.findall(text)


def folder_of(path):
    """The key of ALLOWED that owns this file, 'proto' for generated code, None outside the tree."""
    if path.startswith("proto/"):
        return "proto"
    owners = [key for key in ALLOWED if path.startswith(key + "/")]
    return max(owners, key=len, default=None)


def wrong_arrows(path, text):
    """Yields a message for each include of a folder to the right of this file's."""
    own = folder_of(path)
    if own is None:
        return
    for include in includes_of(text):
        other = folder_of(include[1:-1]) if include.startswith('"') else None
        if other is not None and other != own and other not in ALLOWED[own]:
            yield f"{path}: {own} must not include {include} of {other}"


def is_pure(path):
    return any(re.fullmatch(pattern, path) for pattern in PURE)


def _impurity(include):
    return next((what for pattern, what in IMPURE if re.fullmatch(pattern, include)), None)


def impurities(path, read):
    """Yields a message for each forbidden thing that a pure file reaches through our headers.

    read(path) gives the text of a file of the tree, or None if there is no such file.
    """
    if IMPURE_CALL.search(read(path)):
        yield f"{path}: a pure part must not call {IMPURE_CALL.search(read(path)).group(0)}"
    seen = {path}
    chains = [[path]]
    while chains:
        chain = chains.pop()
        for include in includes_of(read(chain[-1]) or ""):
            name = include[1:-1]
            what = _impurity(include)
            if what and not (chain[-1] == TIME_TYPES and include == "<chrono>"):
                yield f"{' -> '.join(chain)}: a pure part must not include {include} ({what})"
            elif include.startswith('"') and name not in seen and read(name) is not None:
                seen.add(name)
                chains.append(chain + [name])
