package blob

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// bucketURL is a parsed and validated s3:// URL.
type bucketURL struct {
	bucket    string
	prefix    string // prefix that is prepended to every key
	region    string
	endpoint  url.URL // scheme, host and path of the S3 service
	pathStyle bool    // whether URLs contain the bucket in the path, not in the host name
	anonymous bool    // whether requests are sent without a signature
	profile   string  // section of the shared credentials file; empty: AWS_PROFILE or "default"
	uploads   http.Header
}

// bucketParams are the query parameters of an s3:// URL. The parameters' names come from gocloud.dev, which earlier
// versions of Postrider used.
var bucketParams = []string{"region", "endpoint", "prefix", "profile", "anonymous", "use_path_style",
	"s3ForcePathStyle", "disable_https", "ssetype", "kmskeyid"}

// ignoredParams are query parameters that earlier versions passed to gocloud.dev and that have no effect now. The S3
// client never sends checksum trailers, because some services refuse them. If the endpoint is an IP address or
// use_path_style is set, the client never puts the bucket in the host name.
var ignoredParams = []string{"request_checksum_calculation", "response_checksum_validation",
	"hostname_immutable", "awssdk"}

var (
	bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$`)
	regionName = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)
	// hostBucket matches bucket names that can be used as a label in a host name. A bucket with a dot in its name
	// is addressed by path instead, because a wildcard certificate covers only one label.
	hostBucket = regexp.MustCompile(`^[a-z0-9-]+$`)
)

func parseBucketURL(where string) (*bucketURL, error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, err
	}
	if !bucketName.MatchString(u.Host) || u.User != nil || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: write s3://BUCKET?region=REGION; other settings are query parameters (%s)",
			u.Redacted(), strings.Join(bucketParams, ", "))
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	for name, values := range query {
		if !slices.Contains(bucketParams, name) && !slices.Contains(ignoredParams, name) {
			return nil, fmt.Errorf("the parameter %q is unknown; use %s", name, strings.Join(bucketParams, ", "))
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("the parameter %q occurs %d times", name, len(values))
		}
	}
	b := &bucketURL{bucket: u.Host, prefix: query.Get("prefix"), profile: query.Get("profile")}
	var flagErrs []error
	flag := func(name string) bool {
		value := query.Get(name)
		if value == "" {
			return false
		}
		on, err := strconv.ParseBool(value)
		if err != nil {
			flagErrs = append(flagErrs, fmt.Errorf("the parameter %q is %q, must be true or false", name, value))
		}
		return on
	}
	b.anonymous = flag("anonymous")
	b.pathStyle = flag("use_path_style") || flag("s3ForcePathStyle")
	plainHTTP := flag("disable_https")
	if err := errors.Join(flagErrs...); err != nil {
		return nil, err
	}
	if err := b.setEndpoint(firstOf(query.Get("endpoint"), os.Getenv("AWS_ENDPOINT_URL_S3"),
		os.Getenv("AWS_ENDPOINT_URL")), query.Get("region"), plainHTTP); err != nil {
		return nil, err
	}
	b.uploads, err = encryption(query.Get("ssetype"), query.Get("kmskeyid"))
	return b, err
}

// setEndpoint sets region and endpoint. Without an endpoint, the bucket is on AWS and needs a region. Most other
// services accept any region, or expect "us-east-1".
func (b *bucketURL) setEndpoint(endpoint, region string, plainHTTP bool) error {
	b.region = firstOf(region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	switch {
	case b.region == "" && endpoint == "":
		return errors.New("the region is missing; add region=… to the URL or set AWS_REGION")
	case b.region == "":
		b.region = "us-east-1"
	case !regionName.MatchString(b.region):
		return fmt.Errorf("%q is not a region", b.region)
	}
	if endpoint == "" {
		endpoint = "https://s3." + b.region + ".amazonaws.com"
		if strings.HasPrefix(b.region, "cn-") {
			endpoint += ".cn"
		}
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("the endpoint %q is not a URL such as https://s3.example.com", endpoint)
	}
	b.endpoint = url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}
	if plainHTTP {
		b.endpoint.Scheme = "http"
	}
	host := u.Hostname()
	if net.ParseIP(host) != nil || host == "localhost" || !hostBucket.MatchString(b.bucket) {
		b.pathStyle = true
	}
	return nil
}

// encryption returns the headers that request server-side encryption.
func encryption(kind, key string) (http.Header, error) {
	h := http.Header{}
	if kind != "" {
		i := slices.IndexFunc([]string{"AES256", "aws:kms", "aws:kms:dsse"}, func(s string) bool {
			return strings.EqualFold(s, kind)
		})
		if i < 0 {
			return nil, fmt.Errorf(`the parameter "ssetype" is %q, must be AES256, aws:kms or aws:kms:dsse`, kind)
		}
		h.Set("X-Amz-Server-Side-Encryption", []string{"AES256", "aws:kms", "aws:kms:dsse"}[i])
	}
	if key != "" {
		h.Set("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", key)
	}
	return h, nil
}

// url returns the URL for a key, or for the bucket if the key is empty.
func (b *bucketURL) url(key string) *url.URL {
	u := b.endpoint
	if b.pathStyle {
		u.Path += "/" + b.bucket
	} else {
		u.Host = b.bucket + "." + u.Host
	}
	u.Path += "/" + key
	return &u
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
