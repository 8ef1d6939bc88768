package blob

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// partSize is the size of the parts of a large blob. A Put to a bucket needs at most partSize bytes of memory, and
	// briefly half as much more while its buffer grows. S3 does not allow smaller parts, except for the last part.
	partSize = 5 << 20
	// maxParts is the maximum number of parts in an S3 upload. A blob in a bucket has at most maxParts × partSize =
	// 48.8 GiB.
	maxParts = 10_000
	// largePart is the size of the parts of PutLarge. An object that PutLarge uploads has at most maxParts × largePart =
	// 312 GiB.
	largePart = 32 << 20
	// firstBuffer is the size of a Put's initial buffer, which is enough for most messages.
	firstBuffer = 64 << 10
	// abortTimeout is the time limit for the request that deletes the parts of a failed upload.
	abortTimeout = 30 * time.Second
)

// bucket is a store in an S3 bucket. Whether a blob is durable after a successful upload depends on the bucket.
type bucket struct {
	c *client
}

func openBucket(where string) (*Store, error) {
	u, err := parseBucketURL(where)
	if err != nil {
		return nil, fmt.Errorf("blob store: %w", err)
	}
	return &Store{b: &bucket{c: newClient(u)}}, nil
}

func (b *bucket) object(method, key string, query url.Values) request {
	return request{method: method, key: b.c.url.prefix + key, query: query}
}

// put uploads a blob of at most partSize bytes in one request, and a larger blob part by part. S3 makes an object
// visible only when it is complete.
func (b *bucket) put(ctx context.Context, key string, r *source) (int64, error) {
	return b.putSized(ctx, key, r, partSize)
}

// putSized is put with parts of the given size.
func (b *bucket) putSized(ctx context.Context, key string, r *source, size int) (int64, error) {
	part, last, err := readPart(r, make([]byte, 0, firstBuffer), size)
	if err != nil {
		return 0, err
	}
	if !last {
		err = b.putParts(ctx, key, part, r, size)
	} else {
		upload := b.object(http.MethodPut, key, nil)
		upload.header, upload.body = b.uploadHeader(), part
		_, _, err = b.c.do(ctx, upload)
	}
	if err != nil {
		return 0, bucketFull(err)
	}
	return r.n, nil
}

// uploadHeader returns the headers that determine how an object is stored.
func (b *bucket) uploadHeader() http.Header {
	h := b.c.url.uploads.Clone()
	h.Set("Content-Type", "application/octet-stream")
	return h
}

// readPart reads from r until buf holds size bytes, growing buf as needed, and returns last == true when r has ended.
func readPart(r io.Reader, buf []byte, size int) (part []byte, last bool, err error) {
	for len(buf) < size {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(2*cap(buf), size))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return buf, false, nil
}

// completedPart identifies an uploaded part in the request that completes the upload.
type completedPart struct {
	PartNumber int
	ETag       string
}

// putParts uploads the given part and then the rest of r, one part at a time. If an upload fails, putParts deletes the
// uploaded parts.
func (b *bucket) putParts(ctx context.Context, key string, part []byte, r io.Reader, size int) (err error) {
	begin := b.object(http.MethodPost, key, url.Values{"uploads": {""}})
	begin.header = b.uploadHeader()
	_, content, err := b.c.do(ctx, begin)
	if err != nil {
		return err
	}
	var upload struct{ UploadId string }
	if err := xml.Unmarshal(content, &upload); err != nil {
		return fmt.Errorf("begin an upload: %w", err)
	}
	if upload.UploadId == "" {
		return errors.New("the bucket began an upload without an id")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.abort(ctx, key, upload.UploadId))
		}
	}()
	var parts []completedPart
	for last := false; len(part) > 0; {
		if len(parts) == maxParts {
			return fmt.Errorf("the blob is larger than %d bytes, the most that a bucket takes", maxParts*size)
		}
		number := len(parts) + 1
		send := b.object(http.MethodPut, key,
			url.Values{"partNumber": {strconv.Itoa(number)}, "uploadId": {upload.UploadId}})
		send.body = part
		header, _, err := b.c.do(ctx, send)
		if err != nil {
			return fmt.Errorf("part %d: %w", number, err)
		}
		parts = append(parts, completedPart{number, header.Get("ETag")})
		if last {
			break
		}
		if part, last, err = readPart(r, part[:0], size); err != nil {
			return err
		}
	}
	end := b.object(http.MethodPost, key, url.Values{"uploadId": {upload.UploadId}})
	end.body, err = xml.Marshal(struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUpload"`
		Part    []completedPart
	}{Part: parts})
	if err != nil {
		return err
	}
	_, _, err = b.c.do(ctx, end)
	return err
}

// abort deletes the parts of an upload, even if ctx has ended.
func (b *bucket) abort(ctx context.Context, key, upload string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, _, err := b.c.do(ctx, b.object(http.MethodDelete, key, url.Values{"uploadId": {upload}}))
	if e, ok := errors.AsType[*bucketError](err); ok && e.Code == "NoSuchUpload" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("parts may remain in the bucket: %w", err)
	}
	return nil
}

func (b *bucket) get(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := b.c.open(ctx, b.object(http.MethodGet, key, nil))
	return r, absent(err)
}

func (b *bucket) remove(ctx context.Context, key string) error {
	_, _, err := b.c.do(ctx, b.object(http.MethodDelete, key, nil))
	return absent(err)
}

// list reads the bucket in pages of 1,000 keys. The list method skips objects whose keys are not valid blob keys,
// because Postrider did not write such objects.
func (b *bucket) list(ctx context.Context, prefix string, fn func(Info) error) error {
	query := url.Values{"list-type": {"2"}, "prefix": {b.c.url.prefix + prefix}}
	for {
		_, content, err := b.c.do(ctx, request{method: http.MethodGet, query: query})
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		var page struct {
			IsTruncated           bool
			NextContinuationToken string
			Contents              []struct {
				Key          string
				Size         int64
				LastModified time.Time
			}
		}
		if err := xml.NewDecoder(bytes.NewReader(content)).Decode(&page); err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		for _, o := range page.Contents {
			key, ours := strings.CutPrefix(o.Key, b.c.url.prefix)
			if !ours || CheckKey(key) != nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(Info{Key: key, Size: o.Size, Modified: o.LastModified}); err != nil {
				return err
			}
		}
		if !page.IsTruncated {
			return nil
		}
		if page.NextContinuationToken == "" {
			return errors.New("list blobs: the bucket has more keys but does not say where they begin")
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}

func (b *bucket) close() error {
	b.c.http.CloseIdleConnections()
	return nil
}

// absent returns ErrNotFound for an object that does not exist. For a bucket that does not exist, absent returns
// another error.
func absent(err error) error {
	if e, ok := errors.AsType[*bucketError](err); ok && e.Status == http.StatusNotFound &&
		slices.Contains([]string{"NoSuchKey", "NotFound"}, e.Code) {
		return ErrNotFound
	}
	return err
}

// bucketFull wraps errors about an exceeded quota or a full disk with ErrFull.
func bucketFull(err error) error {
	if e, ok := errors.AsType[*bucketError](err); ok && e.full() {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
