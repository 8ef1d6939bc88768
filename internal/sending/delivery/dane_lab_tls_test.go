//go:build tls && linux

package delivery

func init() { wholeLab = true }
