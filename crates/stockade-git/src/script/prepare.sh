# Arguments: git, the base, and what to do: fill (a worktree with the base), count (nothing, it is being filled), include
# (the caller's changes as well), note (what a worktree holds already). Reports `start COMMIT` and `dirty COUNT`.
set -eu
git=$1 base=$2 task=$3
caller=/repository/caller
scratch=$GIT_DIR/stockade-index list=$GIT_DIR/stockade-list

# A tree of everything that a folder holds and does not ignore, by a copy of its index.
tree_of() {
    (
        cd "$1"
        if [ -e "$2" ]; then cp "$2" "$scratch"; fi
        GIT_WORK_TREE=$1 GIT_INDEX_FILE=$scratch
        export GIT_WORK_TREE GIT_INDEX_FILE
        if [ -n "$("$git" ls-files -u | head -c 1)" ]; then exit 3; fi
        changed
        add
        "$git" write-tree
    )
}

# To git a file that is as old as the index may have changed, and it reads it anew each time. These are made a little older.
settle() {
    "$git" ls-files -z | xargs -0 -r touch -c -h -d "10 seconds ago" -- || true
    "$git" update-index -q --refresh >/dev/null || true
}

# A commit of a tree, or the base where the tree is the base's.
start_of() {
    if [ "$1" = "$("$git" rev-parse "$base^{tree}")" ]; then
        echo "$base"
    else
        "$git" commit-tree "$1" -p "$base" -m "Uncommitted changes at the start"
    fi
}

# How many paths the caller changed.
dirty() {
    (
        cd "$caller"
        GIT_WORK_TREE=$caller GIT_INDEX_FILE=$GIT_DIR/callers-index
        export GIT_WORK_TREE GIT_INDEX_FILE
        "$git" -c core.checkStat=minimal status --porcelain=v1 -z --untracked-files=normal |
            tr -dc '\000' | wc -c
    )
}

case $task in
count)
    echo "start $base"
    echo "dirty $(dirty)"
    # Who fills it has seen all attributes, and may yet leave it to git.
    exit 0
    ;;
fill)
    dirty >"$GIT_DIR/stockade-dirty" &
    cd "$GIT_WORK_TREE"
    "$git" read-tree --reset -u "$base"
    settle
    wait
    echo "start $base"
    echo "dirty $(cat "$GIT_DIR/stockade-dirty")"
    ;;
include)
    tree=$(tree_of "$caller" "$GIT_DIR/callers-index")
    start=$(start_of "$tree")
    cd "$GIT_WORK_TREE"
    "$git" read-tree --reset -u "$tree"
    if [ "$start" != "$base" ]; then "$git" read-tree -m "$base"; fi
    settle
    echo "start $start"
    ;;
note)
    tree=$(tree_of "$GIT_WORK_TREE" "$GIT_DIR/index")
    echo "start $(start_of "$tree")"
    ;;
esac
rm -f "$scratch" "$list" "$list.new" "$GIT_DIR/callers-index" "$GIT_DIR/stockade-dirty"

# Attributes further down may set a filter, too.
if "$git" grep -q -E '^[^#]*[[:space:]]filter=' -- ':(glob)**/.gitattributes'; then exit 4; fi
