package config

import (
	"regexp"
	"slices"
	"strings"
)

// MaskedSecret replaces secrets in texts.
const MaskedSecret = "<secret>"

var (
	// urlPassword finds the user and password in a URL.
	urlPassword = regexp.MustCompile(`://[^\s/@]+@`)
	// urlQuery finds a URL with a query. A quotation mark ends the URL, unless a backslash precedes it.
	urlQuery = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"?]*\?(?:\\.|[^\s"\\])+`)
)

// bucketParams are the parameters of the URL of a bucket, in blob_url. They contain no secrets.
var bucketParams = []string{"region", "endpoint", "prefix", "profile", "anonymous", "use_path_style", "disable_https",
	"ssetype", "kmskeyid"}

// MaskURLs replaces the user names, the passwords and the values of parameters in the URLs of a text, because these
// may be secret. The known parameters of buckets stay.
func MaskURLs(text string) string {
	text = urlPassword.ReplaceAllString(text, "://"+MaskedSecret+"@")
	return urlQuery.ReplaceAllStringFunc(text, maskQuery)
}

// maskQuery replaces the values of parameters in a URL that has some.
func maskQuery(found string) string {
	address, query, _ := strings.Cut(found, "?")
	params := strings.Split(query, "&")
	for i, param := range params {
		name, value, named := strings.Cut(param, "=")
		switch {
		case strings.HasPrefix(address, "s3://") && slices.Contains(bucketParams, name), named && value == "":
		case named:
			params[i] = name + "=" + MaskedSecret
		default: // a token without a name
			params[i] = MaskedSecret
		}
	}
	return address + "?" + strings.Join(params, "&")
}
