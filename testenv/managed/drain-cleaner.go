// The admission webhook of Strimzi's drain cleaner, played: it annotates the pod of an eviction, denies the eviction with 500, and leaves the pod to
// Strimzi. Played by ValidatingWebhook.java of strimzi/drain-cleaner at 81dbda45. It is in Go because the API server calls webhooks by TLS only.
//
// The argument is the address of a kubectl proxy. The program prints its own address and the certificate to trust.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const annotation = "strimzi.io/manual-rolling-update"

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	DryRun    bool   `json:"dryRun"`
	Object    struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		DeleteOptions struct {
			Preconditions struct {
				UID string `json:"uid"`
			} `json:"preconditions"`
		} `json:"deleteOptions"`
	} `json:"object"`
}

type response struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type pod struct {
	Metadata struct {
		UID    string            `json:"uid"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

// Sends a request to the API server, and decodes the answer.
func send(method, url, body string, into any) error {
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

func judge(api string, asked *request) (*response, error) {
	allowed := &response{UID: asked.UID, Allowed: true}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s", api, asked.Namespace, asked.Object.Metadata.Name)
	var found pod
	if err := send(http.MethodGet, url, "", &found); err != nil {
		return nil, err
	}
	labels, only := found.Metadata.Labels, asked.Object.DeleteOptions.Preconditions.UID
	isBroker := labels["strimzi.io/kind"] == "Kafka" && strings.HasSuffix(labels["strimzi.io/name"], "-kafka")
	if !isBroker || (only != "" && only != found.Metadata.UID) {
		return allowed, nil
	}
	if !asked.DryRun {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, annotation)
		if err := send(http.MethodPatch, url, patch, &found); err != nil {
			return nil, err
		}
	}
	denial := status{Code: http.StatusInternalServerError, Message: "left to the Cluster Operator"}
	return &response{UID: asked.UID, Status: &denial}, nil
}

// Returns a certificate for 127.0.0.1 that is its own authority.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func main() {
	api := os.Args[1]
	http.HandleFunc("POST /drainer", func(answer http.ResponseWriter, question *http.Request) {
		var asked review
		err := json.NewDecoder(question.Body).Decode(&asked)
		if err == nil {
			asked.Response, err = judge(api, asked.Request)
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		asked.Request = nil
		answer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(answer).Encode(asked); err != nil {
			log.Print(err)
		}
	})
	own, err := certificate()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}})
	if err != nil {
		log.Fatal(err)
	}
	var authority bytes.Buffer
	if err := pem.Encode(&authority, &pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("serves https://%s/drainer %s\n", listener.Addr(), base64.StdEncoding.EncodeToString(authority.Bytes()))
	log.Fatal(http.Serve(listener, nil))
}
