package blobtest

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// versitygwVersion is the version of the S3 server github.com/versity/versitygw. Versitygw is not in go.mod, because it
// depends on more modules than Postrider does.
const versitygwVersion = "v1.8.0"

// Access keys that all test servers accept. Versitygw sets these keys in the environment of the test process.
const (
	accessKey = "postrider-test"
	secretKey = "secret of the loopback bucket"
)

var setKeys = sync.OnceValue(func() error {
	return errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", accessKey), os.Setenv("AWS_SECRET_ACCESS_KEY", secretKey))
})

// Versitygw starts an S3 server that verifies signatures and stores objects in a temporary folder. Versitygw returns a
// bucket's URL for blob.Open, and the folder that stores the bucket's objects. The server stops when the test ends. The
// first use on a machine compiles the server, which takes minutes; the binary is stored in the user's cache folder.
//
// The server stores objects as files, so the keys "raw" and "raw/1" cannot both exist.
func Versitygw(t testing.TB) (url, dir string) {
	t.Helper()
	program := VersitygwProgram(t)
	if err := setKeys(); err != nil {
		t.Fatal(err)
	}
	root, meta := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "mail"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	var output bytes.Buffer
	cmd := exec.Command(program, "--access", accessKey, "--secret", secretKey, "--region", "eu-1", "--port", addr,
		"--quiet", "posix", "--sidecar", meta, root)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return "s3://mail?region=eu-1&endpoint=http://" + addr, filepath.Join(root, "mail")
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("versitygw ended: %v\n%s", err, output.Bytes())
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// VersitygwProgram returns the path of the server's binary. Like Versitygw, it compiles the server if necessary.
func VersitygwProgram(t testing.TB) string {
	t.Helper()
	program, err := installVersitygw()
	if err != nil {
		t.Fatal("install versitygw: ", err)
	}
	return program
}

// installVersitygw returns the path of the server's binary, and compiles the binary if it is missing. Only one process
// compiles the server, and other processes wait for it.
func installVersitygw() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "postrider-test")
	program := filepath.Join(dir, "versitygw-"+versitygwVersion)
	if _, err := os.Stat(program); !errors.Is(err, fs.ErrNotExist) {
		return program, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(program+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	bin, err := os.MkdirTemp(dir, "install-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(bin)
	install := exec.Command("go", "install", "github.com/versity/versitygw/cmd/versitygw@"+versitygwVersion)
	// With -trimpath, as the tests themselves are compiled, the standard library comes from the cache.
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=-trimpath")
	if out, err := install.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(out)))
	}
	return program, os.Rename(filepath.Join(bin, "versitygw"), program)
}
