# Arguments: git, the start, the base, and the text of the configuration that the folder was made with. Reports
# `head COMMIT`, `result COMMIT`, `missed` where files could not be read, `ignored` where nothing changed but ignored
# files are there, and `ref OBJECT NAME` for each reference.
set -u
git=$1 start=$2 base=$3
scratch=$GIT_DIR/stockade-index list=$GIT_DIR/stockade-list names=$GIT_DIR/stockade-names

# Writes a file, whatever the agent left in its place.
put() {
    if [ -L "$2" ] || { [ -e "$2" ] && [ ! -f "$2" ]; }; then rm -rf "$2"; fi
    if printf '%s\n' "$1" >"$2"; then return 0; fi
    rm -rf "$2"
    printf '%s\n' "$1" >"$2"
}

# Whatever the agent left as the configuration, the objects are found and the files read as at the beginning.
# Nobody will check the digest of an index.
put "$4
[index]
	skipHash = true" "$GIT_COMMON_DIR/config" || exit 1
[ -d "$GIT_COMMON_DIR/objects/info" ] || mkdir -p "$GIT_COMMON_DIR/objects/info" || exit 1
put /repository/objects "$GIT_COMMON_DIR/objects/info/alternates" || exit 1
for path in "$list" "$list.new" "$names"; do put "" "$path" || exit 1; done
cd "$GIT_WORK_TREE" || exit 1

# What is checked out, its tree and that of the start, to a file; the references are a part of the report.
tell_names() {
    printf '%s\n' 'HEAD^{commit}' 'HEAD^{tree}' "$start^{tree}" |
        "$git" cat-file --batch-check='%(objectname)' >"$names"
    "$git" for-each-ref --format='ref %(objectname) %(refname)' refs/heads refs/tags refs/stash
}

# An index that knows no file.
begin_anew() {
    GIT_INDEX_FILE=$scratch
    export GIT_INDEX_FILE
    rm -rf "$scratch" "$scratch.lock"
    "$git" read-tree "$start" && changed || exit 1
}

# The agent's index spares reading every file again, unless it hides some from a look.
anew=yes
if [ -f "$GIT_DIR/index" ] && [ ! -L "$GIT_DIR/index" ]; then
    "$git" ls-files -v | grep -q '^[a-z]' &
    hides=$!
    if changed && ! wait "$hides"; then anew=no; fi
fi
if [ "$anew" = yes ]; then begin_anew; fi
tell_names &
add
code=$?
if [ "$code" -ge 128 ]; then
    begin_anew
    add
    code=$?
fi
tree=$("$git" write-tree) || exit 1
wait
if [ "$code" -ne 0 ]; then echo missed; fi
{
    read -r head missing
    read -r head_tree _
    read -r start_tree _
} <"$names"
if [ -n "$missing" ]; then head=; fi
result=$head
if [ "$head" = "$base" ] && [ "$tree" = "$start_tree" ]; then
    # What was uncommitted at the start and is still there is no work.
    result=$start
    if [ -n "$("$git" ls-files -o -i --exclude-standard --directory | head -c 1)" ]; then echo ignored; fi
elif [ -z "$head" ]; then
    result=$("$git" commit-tree "$tree" -m "Work that was not committed") || exit 1
elif [ "$tree" != "$head_tree" ]; then
    result=$("$git" commit-tree "$tree" -p "$head" -m "Work that was not committed") || exit 1
fi
if [ -n "$head" ]; then echo "head $head"; fi
echo "result $result"
