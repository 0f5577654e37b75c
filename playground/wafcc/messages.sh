#! /bin/sh
# Makes a header of lines "NAME text".
while read -r name text; do
	echo "#define $name \"$text\""
done < "$1"
