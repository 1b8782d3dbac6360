// Package filewatch reports changes of files by path, through any symbolic
// links.
//
// A ConfigMap volume changes by swapping a link, an editor saves by renaming a
// new file into place, and a directory may not exist at first. All of these are
// noticed, because every component of a path is watched, not only its end. If
// inotify is not available, Blind reports that, and the caller has to poll.
package filewatch
