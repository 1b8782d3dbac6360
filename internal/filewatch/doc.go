// Package filewatch tells of changes of files as the rest of the program sees
// them: by path, through whatever symbolic links lead there.
//
// A ConfigMap volume changes by a link that is swapped, an editor saves by
// renaming a new file into place, and a folder may be missing at first. All of
// that is heard of, because every step of a path is watched, not only its end.
// Where the kernel cannot help, Blind says so and the caller reads more often.
package filewatch
