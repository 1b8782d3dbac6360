//go:build linux

package windows

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"unicode/utf16"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
)

// serve answers the DLL until the listener is closed. dll/hns.c describes requests and answers.
func serve(l net.Listener, h *fakehns.HNS) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			from := bufio.NewReader(conn)
			for answer(from, conn, h) == nil {
			}
		}()
	}
}

// absent is the length of a string that is not there.
const absent = 1<<32 - 1

func answer(from io.Reader, to io.Writer, h *fakehns.HNS) error {
	var size uint32
	if err := binary.Read(from, binary.LittleEndian, &size); err != nil {
		return err
	}
	request := make([]byte, size)
	if _, err := io.ReadFull(from, request); err != nil {
		return err
	}
	c, err := parse(bytes.NewReader(request))
	if err != nil {
		return err
	}
	code, handle, document := h.Do(c)
	out := binary.LittleEndian.AppendUint32(nil, uint32(code))
	out = binary.LittleEndian.AppendUint64(out, uint64(handle))
	out = appendString(out, document, document != "")
	record := fmt.Sprintf(`{"Success":false,"Error":%q,"ErrorCode":%d}`, code.Error(), uint32(code))
	_, err = to.Write(appendString(out, record, code != 0 && c.Function != "HNSCall"))
	return err
}

func parse(r *bytes.Reader) (c fakehns.Call, err error) {
	n, err := r.ReadByte()
	if err != nil {
		return c, err
	}
	name := make([]byte, n)
	if _, err := io.ReadFull(r, name); err != nil {
		return c, err
	}
	var head struct {
		A      uint32
		B, C   uint16
		D      [8]byte
		Handle uint64
	}
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return c, err
	}
	c.Function, c.Handle = string(name), hns.Handle(head.Handle)
	c.ID = fmt.Sprintf("%08X-%04X-%04X-%X-%X", head.A, head.B, head.C, head.D[:2], head.D[2:])
	for range 3 {
		var size uint32
		if err := binary.Read(r, binary.LittleEndian, &size); err != nil {
			return c, err
		}
		if size == absent {
			continue
		}
		units := make([]uint16, size/2)
		if err := binary.Read(r, binary.LittleEndian, units); err != nil {
			return c, err
		}
		c.Strings = append(c.Strings, string(utf16.Decode(units)))
	}
	return c, nil
}

func appendString(to []byte, s string, present bool) []byte {
	if !present {
		return binary.LittleEndian.AppendUint32(to, absent)
	}
	units := utf16.Encode([]rune(s))
	to = binary.LittleEndian.AppendUint32(to, uint32(2*len(units)))
	for _, u := range units {
		to = binary.LittleEndian.AppendUint16(to, u)
	}
	return to
}
