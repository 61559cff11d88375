# Arguments: git, the start, the base, and the text of the configuration that the folder was made with. Reports
# `head COMMIT`, `result COMMIT`, `missed` where files could not be read, `ignored` where nothing changed but ignored
# files are there, and `ref OBJECT NAME` for each reference.
set -u
git=$1 start=$2 base=$3
index=$GIT_DIR/stockade-index list=$GIT_DIR/stockade-list

# Whatever the agent left as the configuration, the objects are found and the files read as at the beginning.
rm -rf "$GIT_COMMON_DIR/config" "$GIT_COMMON_DIR/objects/info/alternates" "$GIT_DIR/config.worktree" "$index" "$index.lock" "$list"
printf '%s' "$4" >"$GIT_COMMON_DIR/config" || exit 1
[ -d "$GIT_COMMON_DIR/objects/info" ] || mkdir -p "$GIT_COMMON_DIR/objects/info" || exit 1
echo /repository/objects >"$GIT_COMMON_DIR/objects/info/alternates" || exit 1
cd "$GIT_WORK_TREE" || exit 1
GIT_INDEX_FILE=$index
export GIT_INDEX_FILE

fresh() {
    rm -rf "$index" "$index.lock"
    "$git" read-tree "$start" || exit 1
}

# The agent's index spares reading every file again, unless it hides some from a look.
if cp "$GIT_DIR/index" "$index" 2>/dev/null && flags=$("$git" ls-files -v | grep -c '^[a-z]'; true) && [ "$flags" = 0 ]; then
    :
else
    fresh
fi
add
code=$?
if [ "$code" -ge 128 ]; then
    fresh
    add
    code=$?
fi
if [ "$code" -ne 0 ]; then echo missed; fi
tree=$("$git" write-tree) || exit 1
head=$("$git" rev-parse -q --verify 'HEAD^{commit}') || head=
result=$head
if [ -z "$head" ]; then
    result=$("$git" commit-tree "$tree" -m "Work that was not committed") || exit 1
elif [ "$tree" != "$("$git" rev-parse "$head^{tree}")" ]; then
    result=$("$git" commit-tree "$tree" -p "$head" -m "Work that was not committed") || exit 1
fi
# What was uncommitted at the start and is still there is no work.
if [ "$head" = "$base" ] && [ "$tree" = "$("$git" rev-parse "$start^{tree}")" ]; then
    result=$start
    if [ -n "$("$git" ls-files -o -i --exclude-standard --directory | head -c 1)" ]; then echo ignored; fi
fi
if [ -n "$head" ]; then echo "head $head"; fi
echo "result $result"
"$git" for-each-ref --format='ref %(objectname) %(refname)' refs/heads refs/tags refs/stash
rm -f "$index" "$list"
