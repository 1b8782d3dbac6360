package wine

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"

	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
)

// separator ends each field of a message; dll/hns.c describes them.
const separator = "\x1e"

// service answers the DLL.
type service struct {
	hns *fakehns.HNS

	mu      sync.Mutex
	clients map[net.Conn]struct{}
}

// serve answers until the listener is closed.
func (s *service) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.clients[conn] = struct{}{}
		s.mu.Unlock()
		go func() {
			s.talk(conn)
			s.forget(conn)
		}()
	}
}

// forget ends a connection. Windows closes the handles of a process that ends.
func (s *service) forget(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.clients, conn); len(s.clients) == 0 {
		s.hns.DropHandles()
	}
}

// hangUp ends all connections.
func (s *service) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.clients {
		conn.Close()
	}
}

func (s *service) talk(conn net.Conn) {
	for in := bufio.NewReader(conn); ; {
		message, err := readMessage(in)
		if err != nil {
			return
		}
		call, err := callOf(message)
		if err != nil {
			return
		}
		code, handle, document := s.hns.Do(call)
		record := ""
		if code != 0 && call.Function != "HNSCall" {
			record = fmt.Sprintf(`{"Success":false,"Error":%q,"ErrorCode":%d}`, code.Error(), uint32(code))
		}
		answer := []string{strconv.FormatUint(uint64(code), 16), strconv.FormatUint(uint64(handle), 16), document, record}
		if err := writeMessage(conn, answer); err != nil {
			return
		}
	}
}

// callOf returns the call that a message is.
func callOf(message string) (c fakehns.Call, err error) {
	fields := strings.Split(message, separator)
	const function, id, handle, texts, end = 0, 1, 2, 3, 6
	if len(fields) != end+1 {
		return c, fmt.Errorf("%q is no call", message)
	}
	c = fakehns.Call{Function: fields[function], ID: fields[id], Strings: fields[texts:end]}
	if fields[handle] != "" {
		n, err := strconv.ParseUint(fields[handle], 16, 64)
		c.Handle = hns.Handle(n)
		return c, err
	}
	return c, nil
}

// readMessage reads UTF-16 text up to its NUL.
func readMessage(r *bufio.Reader) (string, error) {
	var units []uint16
	for {
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", err
		}
		unit := binary.LittleEndian.Uint16(b[:])
		if unit == 0 {
			return string(utf16.Decode(units)), nil
		}
		units = append(units, unit)
	}
}

func writeMessage(w io.Writer, fields []string) error {
	units := utf16.Encode([]rune(strings.Join(fields, separator) + separator + "\x00"))
	out, err := binary.Append(nil, binary.LittleEndian, units)
	if err == nil {
		_, err = w.Write(out)
	}
	return err
}
