package api

import (
	"net"
	"net/http"
)

// guessesPerSecond is how many requests with unknown keys one address may make.
const guessesPerSecond = 30

func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
