package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/blob/blobtest"
)

// random returns n pseudo-random bytes, which are the same in every test run.
func random(n int) []byte {
	content := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(content)
	return content
}

// Blobs of about the size of an upload part are read back unchanged from a server that verifies signatures.
func TestBucketParts(t *testing.T) {
	t.Parallel()
	url, _ := blobtest.Versitygw(t)
	s := open(t, url+"&prefix=a+b/é%25/")
	for _, size := range []int{0, 1, firstBuffer, firstBuffer + 1, partSize - 1, partSize, partSize + 1, 3*partSize + 5} {
		content := random(size)
		n, err := s.Put(t.Context(), "raw/1", iotest.HalfReader(bytes.NewReader(content)))
		if err != nil || n != int64(size) {
			t.Fatalf("Put of %d bytes = %d, %v", size, n, err)
		}
		if got := get(t, s, "raw/1"); got != string(content) {
			t.Errorf("a blob of %d bytes reads differently, with %d bytes", size, len(got))
		}
	}
}

// A failed multipart Put does not change the key's earlier blob and leaves no parts in the bucket.
func TestBucketAbort(t *testing.T) {
	t.Parallel()
	url, dir := blobtest.Versitygw(t)
	s := open(t, url)
	put(t, s, "raw/1", "old")
	broken := errors.New("broken pipe")
	large := func(end io.Reader) io.Reader { return io.MultiReader(bytes.NewReader(random(2*partSize+1)), end) }
	if _, err := s.Put(t.Context(), "raw/1", large(iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("Put of a broken reader: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := readerFunc(func([]byte) (int, error) { cancel(); return 0, nil })
	if _, err := s.Put(ctx, "raw/1", large(end)); !errors.Is(err, context.Canceled) {
		t.Errorf("Put with a context that ends: %v", err)
	}
	if got := get(t, s, "raw/1"); got != "old" {
		t.Errorf("after failed Puts the blob has %d bytes", len(got))
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, "mail/raw/1") {
			t.Errorf("left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Two stores with different prefixes in one bucket do not see each other's blobs.
func TestBucketPrefix(t *testing.T) {
	t.Parallel()
	url, _ := blobtest.Versitygw(t)
	one, two := open(t, url+"&prefix=one/"), open(t, url+"&prefix=two/x-")
	all := open(t, url)
	put(t, one, "raw/1", "one")
	put(t, two, "raw/1", "two")
	if a, b := get(t, one, "raw/1"), get(t, two, "raw/1"); a != "one" || b != "two" {
		t.Errorf("the blobs read %q and %q", a, b)
	}
	if err := one.Delete(t.Context(), "raw/1"); err != nil {
		t.Error(err)
	}
	if got := list(t, one, ""); len(got) > 0 {
		t.Errorf("after Delete there is %v", got)
	}
	if diff := cmp.Diff(map[string]int64{"raw/1": 3}, list(t, two, "raw/")); diff != "" {
		t.Errorf("the other store (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"two/x-raw/1": 3}, list(t, all, "")); diff != "" {
		t.Errorf("the bucket (-want +got):\n%s", diff)
	}
}

// Bucket errors and credential errors are not reported as a missing blob.
func TestBucketRefuses(t *testing.T) {
	t.Parallel()
	where, _ := blobtest.Versitygw(t)
	for name, x := range map[string]struct{ where, want string }{
		"no such bucket": {strings.Replace(where, "//mail", "//none", 1), "NoSuchBucket"},
		"not signed":     {where + "&anonymous=true", "403"},
		"wrong region":   {strings.Replace(where, "eu-1", "eu-2", 1), "region"},
		"no profile":     {where + "&profile=nobody", "no credentials for the bucket"},
	} {
		s := open(t, x.where)
		_, err := s.Get(t.Context(), "raw/1")
		if err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// If the URL names a profile, the store uses the keys of that profile in the shared credentials file.
func TestBucketProfile(t *testing.T) {
	where, _ := blobtest.Versitygw(t)
	file := filepath.Join(t.TempDir(), "credentials")
	content := fmt.Sprintf("[mail]\naws_access_key_id = %s\naws_secret_access_key = %s\n",
		os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	s := open(t, where+"&profile=mail")
	put(t, s, "a", "one")
	if got := get(t, s, "a"); got != "one" {
		t.Errorf("the blob reads %q", got)
	}
}

// The credentials of a container's role are fetched again when they expire.
func TestBucketContainerRole(t *testing.T) {
	where, _ := blobtest.Versitygw(t)
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	var asked atomic.Int32
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Expiration":%q}`, id, secret,
			time.Now().Add(time.Hour).Format(time.RFC3339))
	}))
	defer role.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	s := open(t, where)
	put(t, s, "a", "one")
	put(t, s, "b", "two")
	if n := asked.Load(); n != 1 {
		t.Errorf("the role was asked for %d times, want once", n)
	}
	s.b.(*bucket).c.credentials.Expire()
	put(t, s, "c", "three")
	if n := asked.Load(); n != 2 {
		t.Errorf("after the expiry the role was asked for %d times, want twice", n)
	}
}

// fakeBucket opens a store whose requests are answered by serve.
func fakeBucket(t *testing.T, serve http.HandlerFunc) *Store {
	t.Helper()
	srv := httptest.NewServer(serve)
	t.Cleanup(srv.Close)
	s := open(t, "s3://mail?anonymous=true&endpoint="+srv.URL)
	s.b.(*bucket).c.timeout = time.Second
	return s
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of the test</Message></Error>", code)
}

// A request is retried after a temporary error from the bucket, but not after a permanent one.
func TestBucketRetries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		code   string
		tries  int32
	}{
		{503, "SlowDown", maxTries}, {500, "InternalError", maxTries}, {429, "TooManyRequests", maxTries},
		{400, "RequestTimeout", maxTries}, {403, "AccessDenied", 1}, {501, "NotImplemented", 1},
		{507, "XMinioStorageFull", 1},
	} {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			s := fakeBucket(t, func(w http.ResponseWriter, r *http.Request) {
				if tries.Add(1) <= maxTries {
					refuse(w, tt.status, tt.code)
				}
			})
			_, err := s.Put(t.Context(), "a", strings.NewReader("x"))
			if err == nil || !strings.Contains(err.Error(), tt.code) || tries.Load() != tt.tries {
				t.Errorf("Put: %v after %d tries, want %d", err, tries.Load(), tt.tries)
			}
		})
	}
	t.Run("then it succeeds", func(t *testing.T) {
		t.Parallel()
		var tries atomic.Int32
		s := fakeBucket(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case tries.Add(1) == 1:
				panic(http.ErrAbortHandler) // cuts the connection
			case tries.Load() == 2:
				refuse(w, 503, "SlowDown")
			case string(body) != "content":
				refuse(w, 400, "BadDigest")
			}
		})
		put(t, s, "a", "content")
	})
}

// Put returns ErrFull if the bucket's quota is exceeded.
func TestBucketFull(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]string{403: "QuotaExceeded", 507: "Other", 400: "XMinioAdminBucketQuotaExceeded"} {
		s := fakeBucket(t, func(w http.ResponseWriter, r *http.Request) { refuse(w, status, code) })
		if _, err := s.Put(t.Context(), "a", strings.NewReader("x")); !errors.Is(err, ErrFull) {
			t.Errorf("%s: %v, want ErrFull", code, err)
		}
	}
}

// If a bucket does not answer, or stops in the middle of a blob, the request fails after its time limit. If the
// caller's context ends, the request ends immediately.
func TestBucketHangs(t *testing.T) {
	t.Parallel()
	s := fakeBucket(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/half") {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	if _, err := s.Put(t.Context(), "a", strings.NewReader("x")); !errors.Is(err, errStalled) {
		t.Errorf("Put: %v", err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, errStalled) {
		t.Errorf("Get: %v", err)
	}
	if err := s.List(t.Context(), "", func(Info) error { return nil }); !errors.Is(err, errStalled) {
		t.Errorf("List: %v", err)
	}
	r, err := s.Get(t.Context(), "half")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); string(got) != "half" || !errors.Is(err, errStalled) {
		t.Errorf("reading half a blob: %q, %v", got, err)
	}
	s.b.(*bucket).c.timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Delete(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Delete: %v", err)
	}
}

// An upload is aborted if the request that completes it returns an error with status 200.
func TestBucketCompletionFails(t *testing.T) {
	t.Parallel()
	var sizes []int
	var aborted bool
	s := fakeBucket(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch q := r.URL.Query(); {
		case q.Has("uploads"):
			io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
		case q.Has("partNumber"):
			sizes = append(sizes, len(body))
		case r.Method == http.MethodDelete:
			aborted = q.Get("uploadId") == "u"
		default:
			io.WriteString(w, "<?xml version='1.0'?>\n<Error><Code>InvalidPart</Code><Message>lost</Message></Error>")
		}
	})
	s.b.(*bucket).c.timeout = time.Minute
	_, err := s.Put(t.Context(), "a", bytes.NewReader(random(2*partSize+7)))
	if err == nil || !strings.Contains(err.Error(), "InvalidPart") || !aborted {
		t.Errorf("Put: %v, aborted: %v", err, aborted)
	}
	if diff := cmp.Diff([]int{partSize, partSize, 7}, sizes); diff != "" {
		t.Errorf("sizes of the parts (-want +got):\n%s", diff)
	}
}

// List reads all pages of the bucket's contents and skips objects that are not blobs.
func TestBucketPages(t *testing.T) {
	t.Parallel()
	s := fakeBucket(t, func(w http.ResponseWriter, r *http.Request) {
		const object = "<Contents><Key>%s</Key><Size>3</Size><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>"
		io.WriteString(w, "<ListBucketResult>")
		switch r.URL.Query().Get("continuation-token") {
		case "":
			fmt.Fprintf(w, object+object, "raw/1", "Photo of a Cat.JPG")
			io.WriteString(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>a b+c=</NextContinuationToken>")
		case "a b+c=":
			fmt.Fprintf(w, object, "raw/2")
		}
		io.WriteString(w, "</ListBucketResult>")
	})
	if diff := cmp.Diff(map[string]int64{"raw/1": 3, "raw/2": 3}, list(t, s, "")); diff != "" {
		t.Errorf("blobs (-want +got):\n%s", diff)
	}
}

func TestParseBucketURL(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		t.Setenv(name, "")
	}
	for _, tt := range []struct{ where, want string }{
		{"s3://mail?region=eu-central-1",
			"https://mail.s3.eu-central-1.amazonaws.com/k"},
		{"s3://mail?region=cn-north-1&disable_https=true",
			"http://mail.s3.cn-north-1.amazonaws.com.cn/k"},
		{"s3://my.mail?region=eu-central-1",
			"https://s3.eu-central-1.amazonaws.com/my.mail/k"},
		{"s3://mail/?region=x&use_path_style=true",
			"https://s3.x.amazonaws.com/mail/k"},
		{"s3://mail?endpoint=https://s3.example.com",
			"https://mail.s3.example.com/k"},
		{"s3://mail?endpoint=https://s3.example.com:9000/v1/&use_path_style=1",
			"https://s3.example.com:9000/v1/mail/k"},
		{"s3://mail?endpoint=http://127.0.0.1:9000&hostname_immutable=true",
			"http://127.0.0.1:9000/mail/k"},
		{"s3://mail?endpoint=http://localhost:9000&request_checksum_calculation=when_required",
			"http://localhost:9000/mail/k"},
		{"s3://mail?endpoint=http://minio&s3ForcePathStyle=true&ssetype=aes256",
			"http://minio/mail/k"},
	} {
		u, err := parseBucketURL(tt.where)
		if err != nil {
			t.Errorf("%s: %v", tt.where, err)
		} else if got := u.url("k").String(); got != tt.want {
			t.Errorf("%s leads to %s, want %s", tt.where, got, tt.want)
		}
	}
	for where, want := range map[string]string{
		"s3://mail":                                     "region is missing",
		"s3://?region=x":                                "write s3://BUCKET",
		"s3://mail/folder?region=x":                     "write s3://BUCKET",
		"s3://mail?region=x&regoin=y":                   `the parameter "regoin" is unknown; use region, endpoint`,
		"s3://mail?region=x&role=arn:aws:iam::1:role/a": `the parameter "role" is unknown`,
		"s3://mail?region=x&region=y":                   "occurs 2 times",
		"s3://mail?region=a.example/":                   "not a region",
		"s3://mail?region=x&anonymous=maybe":            `must be true or false`,
		"s3://mail?region=x&endpoint=s3.example.com":    "not a URL",
		"s3://mail?region=x&endpoint=https://a:b@host":  "not a URL",
		"s3://mail?region=x&ssetype=rot13":              "must be AES256",
		"s3://mail?region=x&prefix=%zz":                 "invalid URL escape",
	} {
		if _, err := parseBucketURL(where); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", where, err, want)
		}
	}
	t.Setenv("AWS_REGION", "eu-west-1")
	u, err := parseBucketURL("s3://mail?ssetype=AWS:KMS&kmskeyid=key")
	if err != nil || u.region != "eu-west-1" {
		t.Fatalf("%+v, %v", u, err)
	}
	h := http.Header{"X-Amz-Server-Side-Encryption": {"aws:kms"}, "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": {"key"}}
	if diff := cmp.Diff(h, u.uploads); diff != "" {
		t.Errorf("headers of an upload (-want +got):\n%s", diff)
	}
	if _, err := Open(t.Context(), "s3://mail?"+url.Values{"bucket": {"x"}}.Encode()); err == nil {
		t.Error("Open took an unknown parameter")
	}
}

// An object of more than one part of PutLarge, in a bucket that a URL with a path names.
func TestBucketPutLarge(t *testing.T) {
	t.Parallel()
	where, _ := blobtest.Versitygw(t)
	s, key, err := OpenObject(t.Context(), strings.Replace(where, "//mail?", "//mail/nightly/one.tar?", 1))
	if err != nil || key != "nightly/one.tar" {
		t.Fatalf("%q, %v", key, err)
	}
	defer s.Close()
	if found, err := s.Has(t.Context(), key); found || err != nil {
		t.Errorf("before: %v, %v", found, err)
	}
	want := strings.Repeat("0123456789abcdef", (largePart+5)/16+1)
	if n, err := s.PutLarge(t.Context(), key, strings.NewReader(want)); n != int64(len(want)) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if found, err := s.Has(t.Context(), key); !found || err != nil {
		t.Errorf("after: %v, %v", found, err)
	}
	if got := get(t, s, key); got != want {
		t.Errorf("read %d bytes, want %d", len(got), len(want))
	}
}

func TestOpenObjectRefuses(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"s3://mail", "s3://mail/?region=eu-1", "s3://mail/Upper?region=eu-1", "/a/file",
		"file:///a/file", "s3://mail/a/../b?region=eu-1"} {
		if _, _, err := OpenObject(t.Context(), where); err == nil {
			t.Errorf("%s was opened", where)
		}
	}
}
