#!/usr/bin/env bash
# Builds the fuzz targets with clang in build-fuzz and runs each for a while over its kept corpus, two
# at a time. Fails on a crash, a broken invariant, an input of over 10 s, or 2 GiB of memory. Part of
# `make test` with CI=true.
#
# usage: scripts/fuzz.sh [--keep] [TARGET...]     (default: all targets)
#
#   --keep   afterwards add to tests/fuzz/corpus what reaches code that the kept inputs don't
#
# environment
#   STET_FUZZ_S         seconds for each target (default 60)
#   STET_FUZZ_JOBS      targets at a time (default 2)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FOLDER=build-fuzz
readonly SECONDS_EACH=${STET_FUZZ_S:-60}
readonly KEPT_BYTES_MAX=60000  # of one target
readonly -A INPUT_BYTES_MAX=([vocabulary]=16384 [tokenize]=2048 [template]=2048 [chat]=2048
    [state]=20480 [import]=256)

keep=0
if [[ ${1:-} == --keep ]]; then
    keep=1
    shift
fi
targets=("$@")
((${#targets[@]})) || targets=(template tokenize chat vocabulary state import)

# Fuzzes one target; its log is in build-fuzz/log/TARGET.
fuzz() {
    local target=$1 status=0
    local log=$FOLDER/log/$target found=$FOLDER/corpus/$target
    mkdir -p "$FOLDER/log" "$found" "$FOLDER/findings"
    # The fuzzer ends by itself; `timeout` is for one that doesn't.
    UBSAN_OPTIONS=print_stacktrace=1 timeout -k 10 $((SECONDS_EACH + 120)) \
        "$FOLDER/tests/fuzz/fuzz_$target" -max_total_time="$SECONDS_EACH" \
        -max_len="${INPUT_BYTES_MAX[$target]}" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$FOLDER/findings/$target-" \
        "$found" "tests/fuzz/corpus/$target" >"$log" 2>&1 || status=$?
    if ((status != 0)); then
        echo "fuzz: $target FAILED; the input is in $FOLDER/findings, the end of $log:"
        tail -n 40 "$log"
        return 1
    fi
    local runs covered
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    covered=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
    echo "fuzz: $target: $runs inputs in $SECONDS_EACH s, ${covered:-cov: 0}, no finding"
}

# Adds the small ones of the inputs that reach more than the kept ones.
keep_inputs() {
    local target=$1 kept=tests/fuzz/corpus/$1 merged path bytes
    merged=$(mktemp -d)
    cp "$kept"/* "$merged/"
    "$FOLDER/tests/fuzz/fuzz_$target" -merge=1 -max_len="${INPUT_BYTES_MAX[$target]}" \
        "$merged" "$FOLDER/corpus/$target" >/dev/null 2>&1
    while read -r bytes path; do
        [[ -e $kept/$(basename "$path") ]] && continue
        (($(cat "$kept"/* | wc -c) + bytes <= KEPT_BYTES_MAX)) || break
        cp "$path" "$kept/found-$(basename "$path" | cut -c1-12)"
    done < <(find "$merged" -type f -printf '%s %p\n' | sort -n)
    rm -r "$merged"
    echo "fuzz: $target keeps $(find "$kept" -type f | wc -l) inputs, $(cat "$kept"/* | wc -c) bytes"
}

scripts/setup.sh build test fuzz
scripts/build.sh $FOLDER fuzz_targets -DSTET_BUILD_TESTS=ON -DSTET_FUZZ=ON \
    -DSTET_SANITIZE=address,undefined -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++

failed=0
running=()
for target in "${targets[@]}"; do
    fuzz "$target" &
    running+=($!)
    if ((${#running[@]} >= ${STET_FUZZ_JOBS:-2})); then
        wait "${running[0]}" || failed=1
        running=("${running[@]:1}")
    fi
done
for process in "${running[@]}"; do wait "$process" || failed=1; done
if ((keep)) && ((!failed)); then
    for target in "${targets[@]}"; do keep_inputs "$target"; done
fi
exit "$failed"
