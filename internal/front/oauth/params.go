package oauth

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/grants"
)

const bodyMax = 64 << 10 // maximum size of a request body in bytes

func refuse(c grants.Code, text string) error { return &grants.Error{Code: c, Text: text} }

// body reads the body of a request.
func body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, refuse(grants.InvalidRequest, "The request is larger than 65536 octets.")
	}
	if err != nil {
		return nil, refuse(grants.InvalidRequest, "The request broke off.")
	}
	return text, nil
}

// params holds the parameters of a request. Empty values are treated as missing (RFC 6749 section 3.1).
type params map[string]string

// readParams reads parameters from a form or from a JSON object with string values.
func readParams(contentType string, text []byte) (params, error) {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && media == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(text))
		if err != nil {
			return nil, refuse(grants.InvalidRequest, "The form cannot be read.")
		}
		return single(form)
	case err == nil && media == "application/json":
		var given map[string]*string
		if err := json.Unmarshal(text, &given); err != nil {
			return nil, refuse(grants.InvalidRequest, "The body must be a JSON object whose members are texts.")
		}
		all := params{}
		for name, value := range given {
			if value != nil {
				all[name] = *value
			}
		}
		return all, nil
	}
	return nil, refuse(grants.InvalidRequest, "The Content-Type must be application/x-www-form-urlencoded or "+
		"application/json.")
}

// single returns the parameters of a form or query string. Each parameter may occur only once (RFC 6749 section 3.1).
// RFC 8707 allows several resource parameters, but this server accepts only one.
func single(form url.Values) (params, error) {
	all := params{}
	for name, values := range form {
		if len(values) > 1 {
			return nil, refuse(grants.InvalidRequest, "No parameter may be given more than once.")
		}
		all[name] = values[0]
	}
	return all, nil
}

// readJSON decodes a JSON object and ignores unknown fields.
func readJSON(text []byte, into any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) || json.Unmarshal(text, into) != nil {
		return refuse(grants.InvalidRequest,
			"The body must be a JSON object, with texts and lists of texts as RFC 7591 has "+
				"them.")
	}
	return nil
}
