package blob

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// credentialTimeout is the time limit for a request to a service that issues credentials.
	credentialTimeout = 5 * time.Second
	// rereadAfter is how long credentials without an expiry are used before their source is read again. Because
	// credentials are read again, operators can replace the keys in a file while a node runs.
	rereadAfter = time.Minute
)

// credentialChain tries its sources in order and uses the first credentials that it finds until they expire.
type credentialChain struct {
	sources []credentialSource
	current credentials.Provider // source of the current credentials; nil before the first call
	until   time.Time            // when credentials without an expiry are read again; zero for credentials with an expiry
}

type credentialSource struct {
	name     string
	provider credentials.Provider
}

// newCredentials looks for credentials in the same order as AWS's own tools. The order is: keys in the environment, the
// web identity of a pod, the shared files, and the role of a container or an instance.
func newCredentials(profile string) *credentials.Credentials {
	role := credentialSource{"role of the container or instance", &credentials.IAM{
		Client: &http.Client{Timeout: credentialTimeout}}}
	sharedFiles := credentialSource{"shared files", &credentials.FileAWSCredentials{Profile: profile}}
	if profile != "" {
		return credentials.New(&credentialChain{sources: []credentialSource{sharedFiles}})
	}
	c := &credentialChain{sources: []credentialSource{{"environment", &credentials.EnvAWS{}}, sharedFiles}}
	noInstance, _ := strconv.ParseBool(os.Getenv("AWS_EC2_METADATA_DISABLED"))
	switch {
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		c.sources = slices.Insert(c.sources, 1, role)
	case !noInstance, os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "",
		os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		c.sources = append(c.sources, role)
	}
	return credentials.New(c)
}

// RetrieveWithCredContext returns credentials from the first source that provides them.
func (c *credentialChain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	errs := []error{errors.New("no credentials for the bucket")}
	for _, s := range c.sources {
		v, err := s.provider.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.current, c.until = s.provider, time.Time{}
			if v.Expiration.IsZero() {
				c.until = time.Now().Add(rereadAfter)
			}
			return v, nil
		}
		if err == nil {
			err = errors.New("no keys")
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
	}
	return credentials.Value{}, errors.Join(errs...)
}

// Retrieve is RetrieveWithCredContext without a context.
func (c *credentialChain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(&credentials.CredContext{})
}

// IsExpired reports whether the credentials must be retrieved again.
func (c *credentialChain) IsExpired() bool {
	if c.current == nil {
		return true
	}
	if !c.until.IsZero() {
		return time.Now().After(c.until)
	}
	return c.current.IsExpired()
}
