// Package archive writes and reads the files of `postrider backup`. An archive is a tar file with the layout of
// data_dir and a manifest as its last entry. With a passphrase, the whole file is encrypted by age, so that
// `age --decrypt` and tar can also unpack it.
//
// # Invariants
//
// The manifest has the size and the SHA-256 of every other entry, in the order of the entries. Because the manifest
// comes last, an archive that was cut off has none. [Read] returns nil only if it has read a whole archive in which each
// entry is as the manifest says. Read passes entries to its caller before it has seen the manifest, so the caller must
// keep them apart until Read has returned.
//
// # Failures
//
// [ErrPassphrase], [ErrNeedsPassphrase] and [ErrNoManifest] say what is wrong with an archive. An encrypted archive that
// was altered or cut off fails while it is read.
//
// # Out of scope
//
// The package does not decide which files are in an archive or where they go, and does not open databases.
package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"filippo.io/age"
)

// Names of entries.
const (
	Database     = "postrider.db"
	Key          = "secret.key"
	BlobFolder   = "blobs/"
	manifestName = "manifest.json"
)

// Format is the version of the layout. Read refuses later ones.
const Format = 1

// workFactor is the logarithm of the work that deriving a key from a passphrase takes: about a second. Tests set it to
// less.
var workFactor = 18

// encrypted is the beginning of every file that age has encrypted.
const encrypted = "age-encryption.org/"

// Errors of Read.
var (
	ErrPassphrase      = errors.New("the passphrase is not the one with which the backup was encrypted")
	ErrNeedsPassphrase = errors.New("the backup is encrypted")
	// ErrNotEncrypted is returned if a passphrase was given: somebody who cannot encrypt with it may have replaced the
	// archive.
	ErrNotEncrypted = errors.New("the backup is not encrypted, although a passphrase was given")
	ErrNoManifest   = errors.New("the backup has no manifest: it is incomplete, or no backup of Postrider")
)

// Manifest describes an archive. In the file, it is a line of JSON, and a line for each entry follows.
type Manifest struct {
	Format   int              `json:"format"`
	Program  string           `json:"program"` // version that made the archive
	MadeAt   time.Time        `json:"made_at"` // time of the snapshot of the database
	Schema   string           `json:"schema"`  // newest migration of the database
	KeyCheck string           `json:"key_check"`
	HasKey   bool             `json:"has_key"`
	Blobs    int64            `json:"blobs"`      // number of blobs in the archive
	BlobSize int64            `json:"blob_bytes"` // their size
	InBucket bool             `json:"blobs_in_bucket"`
	Tables   map[string]int64 `json:"tables"` // number of rows of each table
}

// file is the line of an entry.
type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Writer writes an archive. Call Close, or only Discard after an error.
type Writer struct {
	tar   *tar.Writer
	crypt io.WriteCloser // nil without a passphrase
	lines *os.File
	buf   *bufio.Writer // writes to lines
}

// NewWriter returns a writer of an archive to w. If passphrase is not empty, it encrypts the archive. The lines of the
// manifest are collected in a temporary file in dir.
func NewWriter(w io.Writer, passphrase, dir string) (*Writer, error) {
	a := &Writer{}
	if passphrase != "" {
		to, err := age.NewScryptRecipient(passphrase)
		if err != nil {
			return nil, fmt.Errorf("use the passphrase: %w", err)
		}
		to.SetWorkFactor(workFactor)
		if a.crypt, err = age.Encrypt(w, to); err != nil {
			return nil, fmt.Errorf("begin to encrypt: %w", err)
		}
		w = a.crypt
	}
	var err error
	if a.lines, err = os.CreateTemp(dir, ".manifest-*"); err != nil {
		return nil, fmt.Errorf("create a file for the manifest: %w", err)
	}
	a.tar, a.buf = tar.NewWriter(w), bufio.NewWriter(a.lines)
	return a, nil
}

// Discard removes the temporary file.
func (a *Writer) Discard() error {
	return errors.Join(a.lines.Close(), os.Remove(a.lines.Name()))
}

// Add adds a file to the archive, with its owner and modification time, and returns its size. If the file does not
// exist, Add returns fs.ErrNotExist and leaves the archive unchanged.
func (a *Writer) Add(from, name string) (int64, error) {
	f, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return 0, err
	}
	h.Name, h.Mode, h.Format = name, 0o600, tar.FormatPAX // the PAX format preserves fractions of a second
	if err := a.tar.WriteHeader(h); err != nil {
		return 0, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(a.tar, sum), f)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != info.Size() {
		err = fmt.Errorf("%s changed while it was being copied", from)
	}
	if err != nil {
		return n, err
	}
	return n, json.NewEncoder(a.buf).Encode(file{name, n, hex.EncodeToString(sum.Sum(nil))})
}

// Close writes the manifest and ends the archive. The caller closes the underlying writer.
func (a *Writer) Close(m Manifest) error {
	m.Format = Format
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	head = append(head, '\n')
	if err := a.buf.Flush(); err != nil {
		return err
	}
	size, err := a.lines.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = a.lines.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	h := &tar.Header{Name: manifestName, Mode: 0o600, Size: int64(len(head)) + size, ModTime: m.MadeAt,
		Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.Copy(a.tar, io.MultiReader(bytes.NewReader(head), a.lines)); err != nil {
		return err
	}
	if err := a.tar.Close(); err != nil {
		return err
	}
	if a.crypt != nil {
		err = a.crypt.Close()
	}
	return errors.Join(err, a.Discard())
}

// Read reads an archive and calls fn for each entry except for the manifest. The function fn must read r to its end.
// Read collects the checksums in a temporary file in dir.
func Read(r io.Reader, passphrase, dir string, fn func(name string, size int64, r io.Reader) error) (
	m Manifest, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	from, err := decrypt(in, passphrase)
	if err != nil {
		return m, err
	}
	lines, err := os.CreateTemp(dir, ".manifest-*")
	if err != nil {
		return m, fmt.Errorf("create a file for checksums: %w", err)
	}
	defer func() { err = errors.Join(err, lines.Close(), os.Remove(lines.Name())) }()
	seen := bufio.NewWriter(lines)
	for t := tar.NewReader(from); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, tar.ErrHeader) {
			return m, ErrNoManifest
		}
		if err != nil {
			return m, cut(err)
		}
		if h.Name == manifestName {
			if err := seen.Flush(); err != nil {
				return m, err
			}
			if _, err := lines.Seek(0, io.SeekStart); err != nil {
				return m, err
			}
			if m, err = compare(t, lines); err != nil {
				return m, err
			}
			_, err := io.Copy(io.Discard, from) // an encrypted archive ends with a check
			return m, cut(err)
		}
		sum := sha256.New()
		if err := fn(h.Name, h.Size, io.TeeReader(t, sum)); err != nil {
			return m, cut(err)
		}
		if err := json.NewEncoder(seen).Encode(file{h.Name, h.Size, hex.EncodeToString(sum.Sum(nil))}); err != nil {
			return m, err
		}
	}
}

// decrypt returns the content of the archive.
func decrypt(in *bufio.Reader, passphrase string) (io.Reader, error) {
	head, err := in.Peek(len(encrypted))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if string(head) != encrypted && passphrase != "" {
		return nil, ErrNotEncrypted
	}
	if string(head) != encrypted {
		return in, nil
	}
	if passphrase == "" {
		return nil, ErrNeedsPassphrase
	}
	identity, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, fmt.Errorf("use the passphrase: %w", err)
	}
	out, err := age.Decrypt(in, identity)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, ErrPassphrase
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt the backup: %w", cut(err))
	}
	return out, nil
}

// cut names the usual cause of an archive that ends early.
func cut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the backup is incomplete: %w", err)
	}
	return err
}

// compare reads the manifest and returns an error unless the entries are as it says.
func compare(manifest io.Reader, seen io.Reader) (m Manifest, err error) {
	want, got := bufio.NewReader(manifest), bufio.NewScanner(seen)
	head, err := want.ReadBytes('\n')
	if err != nil {
		return m, fmt.Errorf("read the manifest: %w", cut(err))
	}
	if err := json.Unmarshal(head, &m); err != nil {
		return m, fmt.Errorf("read the manifest: %w", err)
	}
	if m.Format > Format {
		return m, fmt.Errorf("the backup has the format %d of Postrider %s, and this program reads up to %d: restore it "+
			"with that release", m.Format, m.Program, Format)
	}
	for {
		line, err := want.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m, fmt.Errorf("read the manifest: %w", cut(err))
		}
		var f file
		if err := json.Unmarshal(line, &f); err != nil {
			return m, fmt.Errorf("read the manifest: %w", err)
		}
		if !got.Scan() {
			return m, fmt.Errorf("the backup lacks %s: %w", f.Name, fs.ErrNotExist)
		}
		if !bytes.Equal(got.Bytes(), bytes.TrimSuffix(line, []byte("\n"))) {
			return m, fmt.Errorf("%s in the backup is damaged: its size or checksum is not the one of the manifest", f.Name)
		}
	}
	if got.Scan() {
		return m, errors.New("the backup has a file that its manifest does not name")
	}
	return m, got.Err()
}
