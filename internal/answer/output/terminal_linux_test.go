package output

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
)

// openTerminal returns both ends of a terminal with some columns.
func openTerminal(t *testing.T, columns uint16) (screen, program *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return screen, program
}

// Only a terminal gets wrapped lines and colours.
func TestTerminalsAreRecognised(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	const text = "verdict    REFUSED (dropped): the Service has endpoints, but none on this node\n"
	words := func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	format := Format{asText}
	var plainText strings.Builder
	if err := format.Write(&plainText, nil, words); err != nil || plainText.String() != text {
		t.Errorf("%v: %q", err, plainText.String())
	}
	screen, program := openTerminal(t, 50)
	if err := format.Write(program, nil, words); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1024)
	if err := screen.SetReadDeadline(testkit.Deadline(testkit.Timeout)); err != nil {
		t.Log(err) // it then waits for as long as the test may take
	}
	n, err := screen.Read(buffer)
	want := "verdict    " + red + "REFUSED" + plain + " (dropped): the Service has\r\n           endpoints, but none on this node\r\n"
	if got := string(buffer[:n]); err != nil || got != want {
		t.Errorf("%v: the terminal shows %q, want %q", err, got, want)
	}
}
