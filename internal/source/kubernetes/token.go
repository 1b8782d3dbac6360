package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"sluice/internal/base/regularfile"
)

const (
	// tokenPeriod is how long a token is used before its file is read again, unless the server
	// refuses it, as with client-go: the kubelet replaces tokens minutes before they expire.
	tokenPeriod = 50 * time.Second
	// tokenTimeout is how long a request waits for the file.
	tokenTimeout = time.Second
	// maxToken is more than any token has.
	maxToken = 1 << 20
)

// followToken makes a client read the file of its token itself. client-go would have all
// requests wait for a file that blocks, for good if that is a pipe.
func followToken(config *rest.Config) {
	if config.BearerTokenFile == "" {
		return
	}
	source := &tokenFile{path: config.BearerTokenFile, token: config.BearerToken, at: time.Now()}
	config.BearerToken, config.BearerTokenFile = "", ""
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &bearer{rt, source} })
}

// bearer adds the token of a file to requests.
type bearer struct {
	http.RoundTripper
	source *tokenFile
}

var _ utilnet.RoundTripperWrapper = &bearer{}

func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	token := b.source.get(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		b.source.refused(token)
	}
	return response, err
}

// tokenFile is a token that is replaced in a file from time to time.
type tokenFile struct {
	path string

	mu      sync.Mutex
	token   string        // the last one that could be read
	at      time.Time     // when the file was last read, or tried
	reading chan struct{} // closed when the file has been read; nil if nobody reads it
}

// get returns the token. The file is read anew if that was long ago, but not waited for if it
// does not answer.
func (f *tokenFile) get(ctx context.Context) string {
	if done := f.refresh(); done != nil {
		timeout := time.NewTimer(tokenTimeout)
		defer timeout.Stop()
		select {
		case <-done:
		case <-timeout.C:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.token
}

// refused has the file read for the next request, because the server does not take a token of it
// any more.
func (f *tokenFile) refused(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token == token {
		f.at = time.Time{}
	}
}

// refresh begins to read the file if that is due. It returns a channel that is closed when the
// file has been read, nil if the token is fresh.
func (f *tokenFile) refresh() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reading == nil && time.Since(f.at) > tokenPeriod {
		f.reading = make(chan struct{})
		go f.read()
	}
	return f.reading
}

// read reads the file. A token that was read before is better than none.
func (f *tokenFile) read() {
	data, err := regularfile.Read(f.path, maxToken)
	token := strings.TrimSpace(string(data))
	if err == nil && token == "" {
		err = errors.New("it is empty")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		klog.Background().Error(fmt.Errorf("token file %s: %w", f.path, err), "The token of the API server's client stays as it was")
	} else {
		f.token = token
	}
	f.at = time.Now()
	close(f.reading)
	f.reading = nil
}
