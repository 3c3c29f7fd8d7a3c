#!/usr/bin/env bash
# Installs what stet needs and is not here yet; does nothing, quickly, when all of it is.
#
# usage: scripts/setup.sh [build] [test] [bench] [fuzz]     (default: build)
#
#   build  compiler, build tools, libraries (Debian packages); ggml, built for this processor, and
#          xgrammar in .venv
#   test   test libraries, a browser, shells (Debian packages); the Python packages of the tests in .venv
#   bench  the micro-benchmark library (Debian package)
#   fuzz   clang with its sanitizers and fuzzer (Debian packages)
#
# environment
#   STET_CACHE          what may be kept outside the tree (default ~/.cache/stet)
#   STET_NO_CACHE=1     neither use nor keep a built ggml or xgrammar there
#   CI=true             a missing Python test package is an error, not a warning
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly GGML_VERSION=0.20.2.post1  # ggml 0.20.2; the sdist 0.20.2 lacks ggml's sources
readonly GGML_SHA256=e47ff53506342959ffb3ce15380b82828fea10ec5f208f9ef6915895f1a7a176
readonly GGML_OPTIONS="-DGGML_NATIVE=ON -DGGML_LLAMAFILE=ON -DGGML_OPENMP=ON"
readonly XGRAMMAR_VERSION=0.2.9
readonly XGRAMMAR_SHA256=87b466bca2475e29bb0323abc62c6c33cbcbcff47e5fb800a3e2099ac9620b90
readonly XGRAMMAR_FLAGS="-O2 -fno-lto -Wno-error -DXGRAMMAR_LOG_CUSTOMIZE=1"
readonly XGRAMMAR_PATCH=$PWD/cmake/xgrammar/limits.patch
readonly CACHE=${STET_CACHE:-$HOME/.cache/stet}
readonly DEPS=$CACHE/deps
readonly PYTHON=.venv/bin/python

readonly BUILD_PACKAGES=(cmake ninja-build g++ ccache patch pkg-config libssl-dev libsqlite3-dev
    libxxhash-dev libfmt-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libhwy-dev libedit-dev
    libcli11-dev libzstd-dev libboost1.81-dev libspdlog-dev libtomlplusplus-dev)
readonly TEST_PACKAGES=(libgtest-dev libgmock-dev librapidcheck-dev chromium zsh fish)
readonly BENCH_PACKAGES=(libbenchmark-dev)
readonly FUZZ_PACKAGES=(clang libclang-rt-dev)

say() { echo "setup: $*"; }
fail() {
    echo "setup: $*" >&2
    exit 1
}

# --- Debian packages ---

missing_packages() {
    local installed package
    installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^ii *//p' || true)
    for package in "$@"; do
        grep -qxF -- "$package" <<<"$installed" || echo "$package"
    done
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        say "this is no Debian system; CMake will say which libraries are missing, if any"
        return
    fi
    local -a missing as_root=()
    mapfile -t missing < <(missing_packages "$@")
    if ! { command -v python3 && python3 -c 'import ensurepip, venv'; } >/dev/null 2>&1; then
        missing+=(python3-venv)
    fi
    ((${#missing[@]})) || return 0

    say "these Debian packages are missing (compiler, build tools and libraries of stet):"
    say "    ${missing[*]}"
    if ((EUID != 0)); then
        command -v sudo >/dev/null ||
            fail "cannot install them: not root, and no sudo. As root: apt-get install ${missing[*]}"
        as_root=(sudo)
        say "installing them with sudo apt-get"
    else
        say "installing them with apt-get"
    fi
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    "${as_root[@]}" apt-get update -q ||
        say "warning: apt-get update failed; going on with the package lists that are here"
    "${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}" ||
        fail "apt-get could not install: ${missing[*]}"
}

# --- the Python environment ---

make_venv() {
    "$PYTHON" -c 'import pip' 2>/dev/null && return
    say "making a Python environment in .venv"
    # A link to an environment that is gone would make venv fail.
    if [[ -L .venv && ! -e .venv ]]; then rm .venv; fi
    python3 -m venv --clear .venv || fail "python3 -m venv failed"
}

# --- ggml ---

ggml_folder() {
    local folder
    for folder in .venv/lib/python3*/site-packages/libggml; do
        if [[ -d $folder ]]; then echo "$folder"; fi
    done
}

ggml_is_current() {
    local folder
    folder=$(ggml_folder)
    [[ -n $folder && -f $folder/lib/cmake/ggml/ggml-config.cmake && -f $folder/.stet-stamp &&
        $(<"$folder/.stet-stamp") == "$1" ]]
}

# The built wheel in the folder $1, if there is one.
ggml_wheel() { compgen -G "$1/libggml_python-*.whl" | sed 1q || true; }

# The wheel of ggml for this processor lands in the folder $1.
build_ggml() {
    local target=$1 work log
    work=$(mktemp -d)
    log=$work/build.log
    say "building ggml $GGML_VERSION from its PyPI sdist for this processor, about a minute on two"
    say "cores ($GGML_OPTIONS)"
    echo "libggml-python==$GGML_VERSION --hash=sha256:$GGML_SHA256" >"$work/requirements.txt"
    # No wheel from pip's cache and no object from ccache: both know the options, but not which
    # processor "native" was.
    if ! env -u CMAKE_C_COMPILER_LAUNCHER -u CMAKE_CXX_COMPILER_LAUNCHER \
        CMAKE_ARGS="$GGML_OPTIONS" CMAKE_BUILD_PARALLEL_LEVEL="$(nproc)" \
        "$PYTHON" -m pip wheel -v --no-cache-dir --no-deps --no-binary libggml-python \
        --require-hashes -r "$work/requirements.txt" -w "$work/wheel" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        fail "ggml could not be built; the whole log: $log"
    fi
    mkdir -p "$target"
    mv "$work"/wheel/libggml_python-*.whl "$target/"
    rm -r "$work"
}

install_ggml() {
    local key stamp kept wheel='' folder
    key=$(scripts/cpu_key.sh)
    stamp="ggml $GGML_VERSION $GGML_OPTIONS cpu $key"
    if ggml_is_current "$stamp"; then return; fi

    # Two setups at once must not write to one folder.
    mkdir -p "$CACHE"
    exec 9>"$CACHE/setup.lock"
    flock 9
    if ggml_is_current "$stamp"; then return; fi

    local python_tag
    python_tag=$("$PYTHON" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    kept=$DEPS/ggml-$GGML_VERSION-$(sha256sum <<<"$stamp $python_tag" | cut -c1-12)
    if [[ ${STET_NO_CACHE:-0} == 1 ]]; then
        kept=$(mktemp -d)
    fi
    wheel=$(ggml_wheel "$kept")
    if [[ -z $wheel ]]; then
        build_ggml "$kept"
        wheel=$(ggml_wheel "$kept")
    else
        say "installing ggml $GGML_VERSION, built earlier for this processor, from $kept"
    fi
    folder=$(ggml_folder)
    if [[ -n $folder ]]; then rm -f "$folder/.stet-stamp"; fi
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --force-reinstall "$wheel" ||
        fail "pip could not install $wheel"
    echo "$stamp" >"$(ggml_folder)/.stet-stamp"
    if [[ ${STET_NO_CACHE:-0} == 1 ]]; then rm -r "$kept"; fi
    exec 9>&-
}

# --- xgrammar: its C++ core, a static library in .venv/xgrammar ---

# Its sources from PyPI, with our limits, in the folder $1.
unpack_xgrammar() {
    "$PYTHON" scripts/pypi_sdist.py xgrammar "$XGRAMMAR_VERSION" "$XGRAMMAR_SHA256" "$1" ||
        fail "xgrammar $XGRAMMAR_VERSION could not be fetched"
    patch -d "$1/xgrammar-$XGRAMMAR_VERSION" -p1 -s <"$XGRAMMAR_PATCH" ||
        fail "$XGRAMMAR_PATCH does not fit xgrammar $XGRAMMAR_VERSION"
}

# Headers and library land in the folder $1.
build_xgrammar() {
    local target=$1 work log
    local -a options=(-DCMAKE_BUILD_TYPE=Release -DXGRAMMAR_BUILD_PYTHON_BINDINGS=OFF
        "-DCMAKE_CXX_FLAGS=$XGRAMMAR_FLAGS")
    work=$(mktemp -d)
    log=$work/build.log
    say "building xgrammar $XGRAMMAR_VERSION from its PyPI sdist, some three minutes on two cores"
    unpack_xgrammar "$work"
    # A configuration of its own keeps xgrammar from using the one among its sources.
    mkdir "$work/build"
    touch "$work/build/config.cmake"
    if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
    if ! {
        export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
        cmake -S "$work/xgrammar-$XGRAMMAR_VERSION" -B "$work/build" -G Ninja "${options[@]}" &&
            cmake --build "$work/build" --target xgrammar -j "${STET_JOBS:-$(nproc)}" &&
            cmake --install "$work/build" --prefix "$work/prefix" --strip
    } >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        fail "xgrammar could not be built; the whole log: $log"
    fi
    mkdir -p "$(dirname "$target")"
    rm -rf "$target"
    cp -r "$work/prefix" "$target"
    rm -r "$work"
}

install_xgrammar() {
    local stamp kept prefix=.venv/xgrammar
    stamp="xgrammar $XGRAMMAR_VERSION $XGRAMMAR_FLAGS $(sha256sum <"$XGRAMMAR_PATCH" | cut -c1-12)"
    stamp+=" $(uname -m) $("${CXX:-c++}" --version | sed 1q)"
    is_current() { [[ -f $prefix/.stet-stamp && $(<"$prefix/.stet-stamp") == "$stamp" ]]; }
    if is_current; then return; fi
    mkdir -p "$CACHE"
    exec 9>"$CACHE/setup.lock"
    flock 9
    if is_current; then return; fi

    kept=$DEPS/xgrammar-$XGRAMMAR_VERSION-$(sha256sum <<<"$stamp" | cut -c1-12)
    if [[ ${STET_NO_CACHE:-0} == 1 ]]; then kept=$(mktemp -d)/xgrammar; fi
    if [[ ! -f $kept/lib/libxgrammar.a ]]; then build_xgrammar "$kept"; fi
    rm -rf "$prefix"
    cp -r "$kept" "$prefix"
    echo "$stamp" >"$prefix/.stet-stamp"
    if [[ ${STET_NO_CACHE:-0} == 1 ]]; then rm -r "$(dirname "$kept")"; fi
    exec 9>&-
}

# --- Python packages of the tests ---

install_test_python() {
    local requirements=scripts/requirements-test.txt stamp=.venv/.stet-test-requirements
    if cmp -s "$requirements" "$stamp"; then return; fi
    say "installing the Python packages of the tests into .venv ($(grep -v '^#' $requirements | xargs))"
    if "$PYTHON" -m pip install -q -r "$requirements"; then
        cp "$requirements" "$stamp"
    elif [[ ${CI:-} == true ]]; then
        fail "pip could not install the packages in $requirements"
    else
        say "warning: pip could not install them; the tests that need them will be skipped"
    fi
}

main() {
    local -a parts=("${@:-build}") packages=("${BUILD_PACKAGES[@]}")
    local part with_tests=0
    for part in "${parts[@]}"; do
        case $part in
            build) ;;
            test)
                packages+=("${TEST_PACKAGES[@]}")
                with_tests=1
                ;;
            bench) packages+=("${BENCH_PACKAGES[@]}") ;;
            fuzz) packages+=("${FUZZ_PACKAGES[@]}") ;;
            *) fail "unknown part '$part'; there are: build test bench fuzz" ;;
        esac
    done
    install_packages "${packages[@]}"
    make_venv
    install_ggml
    install_xgrammar
    if ((with_tests)); then install_test_python; fi
}

main "$@"
