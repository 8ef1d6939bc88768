package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
)

const (
	// requestTimeout is the time limit for a request, which uploads at most one part. While a blob is read,
	// requestTimeout limits the wait for the next bytes.
	requestTimeout = time.Minute
	// maxTries is the maximum number of attempts for a request that fails with a temporary error.
	maxTries = 4
	// firstPause is the delay before the second attempt. The delay doubles for each subsequent attempt.
	firstPause = 200 * time.Millisecond
	// maxAnswer is the maximum size of an XML response. A list page has at most 1,000 keys of up to 1 KiB each.
	maxAnswer = 8 << 20
)

// errStalled means that the bucket did not answer in time.
var errStalled = errors.New("the bucket does not answer")

// client makes requests to one bucket. A client signs requests, applies a time limit, and retries requests that fail
// with a temporary error.
type client struct {
	url         *bucketURL
	credentials *credentials.Credentials // keys for signing requests; nil if requests are not signed
	http        *http.Client
	timeout     time.Duration // time limit for a request: requestTimeout, except in tests
}

func newClient(u *bucketURL) *client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	c := &client{url: u, timeout: requestTimeout, http: &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dialer.DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true, // compression is off, so that a blob is returned as it was stored
		},
		// Redirects are not followed, because a signature is valid for one host only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if !u.anonymous {
		c.credentials = newCredentials(u.profile)
	}
	return c
}

// request is a request to a bucket.
type request struct {
	method string
	key    string // object key including the prefix; empty if the request concerns the bucket itself
	query  url.Values
	header http.Header
	body   []byte
}

// bucketError is an error response from a bucket.
type bucketError struct {
	Status  int `xml:"-"`
	Code    string
	Message string
}

func (e *bucketError) Error() string {
	return fmt.Sprintf("the bucket answered %d %s: %.300s", e.Status, e.Code, e.Message)
}

// fullCodes are the error codes that AWS, versitygw, Ceph and MinIO return for an exceeded quota or a full disk.
var fullCodes = []string{"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}

func (e *bucketError) full() bool {
	return e.Status == http.StatusInsufficientStorage || slices.Contains(fullCodes, e.Code)
}

func (e *bucketError) temporary() bool {
	switch e.Code {
	case "RequestTimeout", "SlowDown", "InternalError", "ExpiredToken":
		return true
	}
	return !e.full() && (e.Status >= 500 && e.Status != http.StatusNotImplemented ||
		e.Status == http.StatusTooManyRequests)
}

// do makes a request and returns the header and the body of the response. A request that fails with a temporary error
// is retried. A request that gets no response is not retried, so that an unresponsive bucket delays the caller by only
// one timeout.
func (c *client) do(ctx context.Context, r request) (header http.Header, content []byte, err error) {
	err = c.retry(ctx, func() error {
		tryCtx, cancel := context.WithTimeoutCause(ctx, c.timeout, errStalled)
		defer cancel()
		resp, err := c.send(tryCtx, r)
		if err != nil {
			return stalled(ctx, tryCtx, err)
		}
		defer resp.Body.Close()
		header = resp.Header
		if content, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
			return stalled(ctx, tryCtx, err)
		}
		return errorInside(content)
	})
	return header, content, err
}

// errorInside returns the error in the body of a response with status 200. A request that completes an upload may fail
// with status 200, because the server sends the status before the outcome is known.
func errorInside(content []byte) error {
	var answer struct {
		XMLName xml.Name
		bucketError
	}
	if xml.Unmarshal(content, &answer) != nil || answer.XMLName.Local != "Error" {
		return nil
	}
	answer.Status = http.StatusInternalServerError
	return &answer.bucketError
}

// open makes a GET request and returns the body of the response as a stream.
func (c *client) open(ctx context.Context, r request) (io.ReadCloser, error) {
	var body *stallReader
	err := c.retry(ctx, func() error {
		tryCtx, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(c.timeout, func() { cancel(errStalled) })
		resp, err := c.send(tryCtx, r)
		timer.Stop()
		if err != nil {
			err = stalled(ctx, tryCtx, err)
			cancel(nil)
			return err
		}
		body = &stallReader{ctx: ctx, tryCtx: tryCtx, cancel: cancel, body: resp.Body, timer: timer, timeout: c.timeout}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// stallReader reads a body and fails if no bytes arrive for too long. The time between calls to Read does not count
// toward this limit.
type stallReader struct {
	ctx, tryCtx context.Context
	cancel      context.CancelCauseFunc
	body        io.ReadCloser
	timer       *time.Timer
	timeout     time.Duration
}

func (s *stallReader) Read(p []byte) (int, error) {
	s.timer.Reset(s.timeout)
	n, err := s.body.Read(p)
	s.timer.Stop()
	if err != nil && err != io.EOF {
		err = stalled(s.ctx, s.tryCtx, err)
	}
	return n, err
}

func (s *stallReader) Close() error {
	defer s.cancel(nil)
	return s.body.Close()
}

// stalled returns errStalled if an attempt timed out, and err if the attempt failed for another reason. The original
// timeout error is not returned, because callers could mistake it for the end of ctx.
func stalled(ctx, tryCtx context.Context, err error) error {
	if ctx.Err() == nil && context.Cause(tryCtx) == errStalled {
		return errStalled
	}
	return err
}

// retry calls try until it succeeds, fails permanently, or has failed maxTries times.
func (c *client) retry(ctx context.Context, try func() error) error {
	pause := firstPause
	for n := 1; ; n++ {
		err := try()
		if err == nil || n == maxTries || ctx.Err() != nil || errors.Is(err, errStalled) || !c.temporary(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause *= 2
	}
}

// temporary reports whether a retry may soon succeed, because the connection broke or the bucket reported a temporary
// error.
func (c *client) temporary(err error) bool {
	if e, ok := errors.AsType[*bucketError](err); ok {
		if e.Code == "ExpiredToken" && c.credentials != nil {
			c.credentials.Expire()
		}
		return e.temporary()
	}
	_, network := errors.AsType[*url.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF)
}

// send makes one attempt at a request. A response with a status other than 2xx is returned as a *bucketError.
func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	u := c.url.url(r.key)
	u.RawPath = s3utils.EncodePath(u.Path)
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, r.header)
	sum := sha256.Sum256(r.body)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	if c.credentials != nil {
		v, err := c.credentials.GetWithContext(&credentials.CredContext{Context: ctx})
		if err != nil {
			return nil, err
		}
		req = signer.SignV4(*req, v.AccessKeyID, v.SecretAccessKey, v.SessionToken, c.url.region)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &bucketError{}
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || xml.Unmarshal(content, e) != nil || e.Code == "" {
		e.Code = http.StatusText(resp.StatusCode) // the body is empty or a proxy's error page
	}
	e.Status = resp.StatusCode
	if resp.StatusCode/100 == 3 {
		e.Message = strconv.Quote(resp.Header.Get("X-Amz-Bucket-Region")) + " is the bucket's region. " + e.Message
	}
	return nil, e
}
