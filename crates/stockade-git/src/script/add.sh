# Begins the scripts that turn files into objects. `$git` and `$list`, a file to write to, are theirs.

# Adds what changed to the index, and looks at nothing else: the objects are read-only, so that git would write every one
# anew that it is told to add. A long list is matched slower than everything.
add() {
    "$git" ls-files -z -m -o --exclude-standard >"$list" || return 128
    count=$(tr -dc '\000' <"$list" | wc -c)
    if [ "$count" -eq 0 ]; then return 0; fi
    if [ "$count" -gt 2000 ]; then
        "$git" add -A --sparse --ignore-errors -- . >&2
    else
        GIT_LITERAL_PATHSPECS=1 "$git" add -A --sparse --ignore-errors --pathspec-from-file="$list" \
            --pathspec-file-nul >&2
    fi
}

