#!/usr/bin/env bash
# Formats the C++ sources with the tree's .clang-format; with --check only says what would change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v clang-format >/dev/null || {
    echo "format: clang-format is not installed (Debian package clang-format)" >&2
    exit 1
}
mode=(-i)
if [[ ${1:-} == --check ]]; then mode=(--dry-run --Werror); fi
find include src tests bench \( -name '*.h' -o -name '*.cpp' \) -print0 |
    xargs -0 -r clang-format "${mode[@]}"
