package manifest

import (
	"io/fs"
	"syscall"
)

func fileIDOf(info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{inode{uint64(st.Dev), st.Ino}, uint64(st.Nlink), st.Size, st.Ctim.Nano()}
}
