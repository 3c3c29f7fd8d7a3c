#!/usr/bin/env bash
# Everything the tests need, then all tests: the C++ ones through ctest, the table of `stet selftest`,
# and those that run the program through pytest. In CI the fuzz targets too.
#
# usage: scripts/test.sh [BUILD-FOLDER [CMAKE-OPTION...]]
#
# environment
#   CI=true             missing test data is an error; without it such tests are skipped. Fuzzes.
#   STET_FUZZ_S         seconds for each fuzz target (default 60); set without CI, it fuzzes as well
#   STET_TEST_CACHE     where test data is kept (default ~/.cache/stet/test)
#   CTEST_ARGS          more arguments of ctest, e.g. "-R store"
#   PYTEST_ARGS         more arguments of pytest, e.g. "-k resume"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build}
shift || true
export STET_CACHE=${STET_CACHE:-$HOME/.cache/stet}
export STET_TEST_CACHE=${STET_TEST_CACHE:-$STET_CACHE/test}
jobs=$(nproc)
failed=()
timings=''

# Runs a phase and says how long it took; its exit status is the phase's.
phase() {
    local name=$1 status=0 seconds
    shift
    echo "== $name"
    local start=$EPOCHREALTIME
    "$@" || status=$?
    seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    echo "== $name: $seconds s$( ((status == 0)) || echo ", failed ($status)")"
    timings+="${timings:+, }$name $seconds s"
    return "$status"
}

run_ctest() {
    # shellcheck disable=SC2086  # CTEST_ARGS is a list of words
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -j"$jobs" ${CTEST_ARGS:-}
}

run_pytest() {
    local -a folders
    mapfile -t folders < <(find tests -name 'test_*.py' -printf '%h\n' | sort -u)
    # shellcheck disable=SC2086  # PYTEST_ARGS is a list of words
    STET=$PWD/$folder/stet PYTHONDONTWRITEBYTECODE=1 \
        .venv/bin/python -m pytest -q -rs -p no:cacheprovider ${PYTEST_ARGS:-} "${folders[@]}"
}

# Every promise about state, on every model that is supported.
run_selftest() {
    local links name
    links=$(mktemp -d)
    while read -r name; do
        ln -s "$STET_TEST_CACHE/archs/$name.gguf" "$links/"
    done <tests/data/archs/models.txt
    "$folder/stet" selftest --models "$links" --old tests/data/legacy
    local status=$?
    rm -r "$links"
    return "$status"
}

# One build has it: the fuzzers have sanitizers of their own.
has_fuzzing() { [[ $folder == build && (${CI:-} == true || -n ${STET_FUZZ_S:-}) ]]; }

has_python_tests() {
    compgen -G 'tests/*/test_*.py' >/dev/null || return 1
    .venv/bin/python -c 'import pytest' 2>/dev/null && return
    echo "test: pytest is not installed; the tests that run the program are skipped"
    [[ ${CI:-} != true ]] || failed+=(pytest)
    return 1
}

phase setup scripts/setup.sh build test
phase data .venv/bin/python scripts/fetch_test_data.py
phase build scripts/build.sh "$folder" all -DSTET_BUILD_TESTS=ON "$@"
phase ctest run_ctest || failed+=(ctest)
phase selftest run_selftest || failed+=(selftest)
if has_python_tests; then
    phase pytest run_pytest || failed+=(pytest)
fi
if has_fuzzing; then
    phase fuzz scripts/fuzz.sh || failed+=(fuzz)
fi

echo "== phases: $timings"
if ((${#failed[@]})); then
    echo "test: FAILED: ${failed[*]}" >&2
    exit 1
fi
