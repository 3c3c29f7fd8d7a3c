#!/usr/bin/env bash
# Configures and builds one folder.
#
# usage: scripts/build.sh FOLDER TARGET [CMAKE-OPTION...]
#
# Options of earlier calls stay in force (CMake's cache). A new folder has no tests unless asked for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Another clone of the same sources finds its objects in ccache: paths count from here.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

folder=$1
target=$2
shift 2
options=("$@")

cached() { sed -n "s/^$1:[A-Z]*=//p" "$folder/CMakeCache.txt"; }

if [[ -f $folder/CMakeCache.txt ]]; then
    # CMake refuses the cache of a tree that was copied or moved.
    if [[ $(cached CMAKE_HOME_DIRECTORY) != "$PWD" ||
        $(cached CMAKE_CACHEFILE_DIR) != "$(realpath "$folder")" ]]; then
        echo "build: $folder is from another place of this tree; configuring it anew"
        rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
    fi
fi
if [[ ! -f $folder/CMakeCache.txt ]]; then
    options=(-DSTET_BUILD_TESTS=OFF -DCMAKE_BUILD_TYPE=Release "${options[@]}")
fi
cmake -S . -B "$folder" -G Ninja --log-level=WARNING "${options[@]}" >/dev/null
exec cmake --build "$folder" --target "$target"
