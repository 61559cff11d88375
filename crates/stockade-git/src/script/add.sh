# Begins the scripts that turn files into objects. `$git` and `$list`, a file to write to, are theirs.

# Lists what differs from the index: files that changed and, found meanwhile, new ones.
changed() {
    "$git" ls-files -z -o --exclude-standard >"$list.new" &
    new=$!
    "$git" diff -z --name-only --no-renames --no-ext-diff --ignore-submodules=dirty >"$list"
    changed=$?
    wait "$new" && [ "$changed" -eq 0 ] && cat "$list.new" >>"$list" || return 128
}

# Adds what is listed to the index, and looks at nothing else: the objects are read-only, so that git would write every
# one anew that it is told to add. A list of thousands is matched slower than everything.
add() {
    if [ ! -s "$list" ]; then return 0; fi
    if [ "$(wc -c <"$list")" -gt 80000 ]; then
        "$git" add -A --sparse --ignore-errors -- . >&2
    else
        GIT_LITERAL_PATHSPECS=1 "$git" add -A --sparse --ignore-errors --pathspec-from-file="$list" \
            --pathspec-file-nul >&2
    fi
}

