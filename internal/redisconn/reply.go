package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/driver"
)

func (c *Conn) reply(result rueidis.RedisResult) (driver.Reply, error) {
	reply, err := outcome(result)
	if hasReply(err) {
		return reply, err
	}
	if c.asked.Load() && !c.answered.Load() && !gaveUp(err) {
		// With TLS 1.3 our handshake is over before the server misses the certificate; all that we
		// see of its refusal is a reset.
		err = driver.NotSent(fmt.Errorf("%w: %w", errCertificateWanted, err))
	}
	return driver.Reply{}, err
}

// gaveUp reports whether err says that somebody waited no longer, and not that the connection broke.
func gaveUp(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout() || errors.Is(err, context.Canceled) || errors.Is(err, errNoTLS)
}

// hasReply reports whether the server has answered, even with a refusal.
func hasReply(err error) bool {
	_, refused := errors.AsType[*driver.ServerError](err)
	return err == nil || refused
}

// outcome converts a result of rueidis to a Reply.
func outcome(result rueidis.RedisResult) (driver.Reply, error) {
	message, err := result.ToMessage()
	if err == nil {
		return convert(message)
	}
	if rueidis.IsRedisNil(err) {
		return driver.Reply{}, nil
	}
	if _, ok := rueidis.IsRedisErr(err); ok {
		return driver.Reply{}, refusal(err)
	}
	return driver.Reply{}, err
}

// refusal converts a server's error, keeping its text. It returns every other error as it is.
func refusal(err error) error {
	if answer, ok := rueidis.IsRedisErr(err); ok {
		return &driver.ServerError{Text: answer.Error()}
	}
	return err
}

var errCertificateWanted = errors.New("the server asks for a client certificate, and Config.TLS has none")

func convert(message rueidis.RedisMessage) (driver.Reply, error) {
	switch {
	case message.IsNil():
		return driver.Reply{}, nil
	case message.IsMap():
		// CONFIG GET answers with a map in RESP3, and with a flat list in RESP2.
		fields, err := message.AsStrMap()
		if err != nil {
			return driver.Reply{}, err
		}
		flat := driver.Reply{Kind: driver.Array}
		for name, value := range fields {
			flat.Array = append(flat.Array, driver.Reply{Kind: driver.Text, Text: name}, driver.Reply{Kind: driver.Text, Text: value})
		}
		return flat, nil
	case message.IsInt64():
		n, err := message.AsInt64()
		return driver.Reply{Kind: driver.Int, Int: n}, err
	case message.IsArray():
		messages, err := message.ToArray()
		if err != nil {
			return driver.Reply{}, err
		}
		array := make([]driver.Reply, len(messages))
		for i, m := range messages {
			if array[i], err = convert(m); err != nil {
				return driver.Reply{}, err
			}
		}
		return driver.Reply{Kind: driver.Array, Array: array}, nil
	default:
		text, err := message.ToString()
		return driver.Reply{Kind: driver.Text, Text: text}, refusal(err) // an error within an array is a reply, too
	}
}

// Unfit reports whether err says that the two ends will not get along until somebody mends a
// certificate, a name or a password, so that trying again is of no use. It is false for a passing
// error.
func Unfit(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" {
		return true // a TLS alert
	}
	if errors.Is(err, errCertificateWanted) {
		return true
	}
	refusal, ok := errors.AsType[*driver.ServerError](err)
	return ok && !refusal.Passing()
}
