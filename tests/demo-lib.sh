# What the demos share: a world in a folder of its own that ends with them, and commands shown as a person would type them. Sourced by
# each after it has set `world`, the folder, which is removed if all went well.
began=$SECONDS

clean_up() {
    code=$?
    trap - EXIT
    testbed down >/dev/null 2>&1 || true
    if [ "$code" -eq 0 ]; then rm -rf "$world"; else printf '\nThe demo has failed (exit code %s). Logs: %s\n' "$code" "$HIBERNATE_WORLD/logs"; fi
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() { printf '\n\n=== %3d s  %s\n' "$((SECONDS - began))" "$1"; }
note() { printf '# %s\n' "$*"; }

# Shows a command as a person would type it, and runs it.
show() {
    printf '\n$'
    for word in "$@"; do
        if [[ $word =~ ^[A-Za-z0-9_./=:@,-]+$ ]]; then printf ' %s' "$word"; else printf " '%s'" "$word"; fi
    done
    printf '\n'
    "$@" 2>&1
}

# The last step: ends the world, and fails if anything of it is left.
everything_ends() {
    step "Everything ends"
    testbed down 2>/dev/null
    left=$(pgrep -f -- "$world" || true)
    if [ -n "$left" ]; then
        note "still running: $left"
        exit 1
    fi
    note "nothing of it runs any more; the demo took $((SECONDS - began)) s"
}
