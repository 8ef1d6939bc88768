//go:build chaos

package e2e

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// diskFull puts the database on a small file system and keeps that file system full for half a minute. Mounting the
// small file system requires root.
func diskFull(t *testing.T, engine string) sum {
	size := "64m"
	if engine == "postgres" {
		size = "300m"
	}
	dir, err := os.MkdirTemp("", "postrider-full-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0755"); err != nil {
		t.Fatalf("mount a small file system on %s: %v (this scenario needs root, and that mounting is allowed)", dir, err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	w := newCluster(t, engine, setup{data: dir})
	w.during(func() {
		w.burst(w.nodes[0])
		ballast := fill(t, dir)
		time.Sleep(30 * time.Second)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if w.server != nil && !w.server.Up() { // PostgreSQL stopped because it could not write its WAL to the full disk
			w.server.Stop(syscall.SIGQUIT)
			if err := w.server.Start(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
	})
	w.settle()
	return w.sum()
}

// goOnWithin is the time within which waiting work goes on after the end of an outage, with some time for the work.
const goOnWithin = 45 * time.Second

// blobsGone removes the attachments folder for 90 seconds while emails wait for a connection to their destination. A
// third of the emails has an attachment by path, which is fetched and stored after the email is accepted.
func blobsGone(t *testing.T, engine string) sum {
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("file")) }))
	t.Cleanup(files.Close)
	w := newCluster(t, engine, setup{every: 100 * time.Millisecond,
		env: []string{"POSTRIDER_ALLOW_LOOPBACK=true", "POSTRIDER_CONNECTIONS_MAX=16"}})
	w.email = func(i int) map[string]any {
		if i%3 == 0 {
			return map[string]any{"attachments": []map[string]any{{"filename": "a.txt", "path": files.URL + "/a.txt"}}}
		}
		return map[string]any{"attachments": attachment(2000)}
	}
	w.mail.slow(3 * time.Second) // so that emails wait for a connection
	w.during(func() {
		time.Sleep(5 * time.Second)
		if err := os.Rename(w.blobs, w.blobs+".away"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		w.mail.slow(latency)
		if err := os.Rename(w.blobs+".away", w.blobs); err != nil {
			t.Fatal(err)
		}
	})
	if !within(goOnWithin, func() bool { return len(w.missing()) == 0 }) {
		t.Errorf("%d emails have not arrived %v after the folder came back", len(w.missing()), goOnWithin)
	}
	w.settle()
	return w.sum()
}

// attachment returns an attachment of the given size in bytes.
func attachment(size int) []map[string]any {
	return []map[string]any{{"filename": "a.bin", "content": base64.StdEncoding.EncodeToString(make([]byte, size))}}
}

// fill fills the file system that contains a folder, and returns the file that occupies the space. Remove the returned
// file to free the space.
func fill(t *testing.T, folder string) (file string) {
	t.Helper()
	file = filepath.Join(folder, "ballast")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 16
		}
	}
	return file
}
