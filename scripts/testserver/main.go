// Testserver runs a command and provides a temporary PostgreSQL server for the tests that the command runs.
//
//	go run ./scripts/testserver go test ./...
//
// Testserver sets POSTRIDER_TEST_POSTGRES to the server's URL. The URL is the same in each run, so `go test` can use
// cached results for packages that have not changed. Tests whose results must not be cached read POSTRIDER_TEST_RUN,
// which is different in each run. If POSTRIDER_TEST_POSTGRES is already set, tests use that server, and Testserver does
// not start a server.
package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		code = 1
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) == 0 {
		return 0, errors.New("name a command to run")
	}
	os.Setenv("POSTRIDER_TEST_RUN", strconv.FormatInt(time.Now().UnixNano(), 36))
	if os.Getenv("POSTRIDER_TEST_POSTGRES") == "" {
		port, err := choosePort()
		if err != nil {
			return 0, err
		}
		s, err := dbtest.Launch(dbtest.MemoryFolder(), port)
		if err != nil {
			return 0, err
		}
		defer s.Remove()
		os.Setenv("POSTRIDER_TEST_POSTGRES", s.URL)
	}
	// The terminal also sends Ctrl-C to the command. Testserver itself ignores the signal, so that it can remove the
	// server after the command has ended.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	c := exec.Command(args[0], args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = c.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return max(c.ProcessState.ExitCode(), 1), nil
	}
	return 0, err
}

// choosePort returns a free port that depends on the working directory. The port is below 32768, because the system
// uses higher ports for outgoing connections.
func choosePort() (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	h := fnv.New32a()
	h.Write([]byte(dir))
	for i := range uint32(20) {
		port := 20_000 + int((h.Sum32()+i)%12_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("found no free port")
}
