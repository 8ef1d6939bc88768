package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
)

const (
	maxLogLines = 500     // lines of the log in an archive
	maxLogLine  = 4 << 10 // bytes of a line; the rest is left out
	// countLimit is the maximum time for which files are counted, because a folder of blobs can have millions.
	countLimit = 5 * time.Second
)

// writeDisks writes the size of each folder with data, and the free space beside it.
func writeDisks(w io.Writer, c config.Config) {
	folders := []string{c.DataDir}
	if blobs := blobFolder(c.BlobURL); blobs != "" {
		folders = append(folders, blobs)
	}
	for _, folder := range folders {
		files, size, err := countFiles(folder)
		if err != nil {
			fmt.Fprintf(w, "%s: %v\n", folder, err)
		} else {
			fmt.Fprintf(w, "%s: %d files, %s\n", folder, files, inBytes(size))
		}
		var s syscall.Statfs_t
		if err := syscall.Statfs(folder, &s); err == nil {
			fmt.Fprintf(w, "  disk: %s of %s are free; %d of %d inodes are free\n", inBytes(int64(s.Bavail)*int64(s.Bsize)),
				inBytes(int64(s.Blocks)*int64(s.Bsize)), s.Ffree, s.Files)
		}
	}
}

// blobFolder returns the folder of the blobs, or "" if they are not in a folder.
func blobFolder(where string) string {
	if !strings.Contains(where, "://") {
		return where
	}
	if u, err := url.Parse(where); err == nil && u.Scheme == "file" {
		return u.Path
	}
	return ""
}

var errManyFiles = errors.New("the folder has more files than can be counted in a few seconds")

// countFiles counts the files in a folder and adds up their sizes.
func countFiles(folder string) (files, size int64, err error) {
	stop := time.Now().Add(countLimit)
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if time.Now().After(stop) {
			return errManyFiles
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err == nil {
			files, size = files+1, size+info.Size()
		}
		return err
	})
	return files, size, err
}

// writeLog writes the last warnings and errors of a log. Lines without a level count, because a program that crashes
// writes such lines.
func writeLog(w io.Writer, name string) error {
	var in io.Reader = os.Stdin
	switch name {
	case "":
		_, err := fmt.Fprintln(w, "no log was given; see --log")
		return err
	case "-":
	default:
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		defer f.Close()
		in = f
	}
	var last []string
	lines := bufio.NewReaderSize(in, maxLogLine)
	for {
		line, more, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		text := string(line)
		for more && err == nil {
			_, more, err = lines.ReadLine() // the rest of a long line
		}
		if isQuiet(text) {
			continue
		}
		if last = append(last, text); len(last) > 2*maxLogLines {
			last = append(last[:0], last[len(last)-maxLogLines:]...)
		}
	}
	for _, line := range last[max(0, len(last)-maxLogLines):] {
		fmt.Fprintln(w, line)
	}
	return nil
}

// isQuiet reports whether a log line has a level below that of warnings.
func isQuiet(line string) bool {
	for _, level := range []string{"level=INFO", "level=DEBUG", `"level":"INFO"`, `"level":"DEBUG"`} {
		if strings.Contains(line, level) {
			return true
		}
	}
	return false
}
