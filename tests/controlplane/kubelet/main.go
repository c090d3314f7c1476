// Command kubelet answers `kubectl exec` for the Pods of the test world, where no container runs: it takes the streams apart as a
// kubelet does, by the same library, and asks the supervisor what the command would have said.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// supervisor is who plays the containers.
type supervisor struct {
	url   string
	token string
}

// question names the container and the command line.
type question struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Container string   `json:"container"`
	Command   []string `json:"command"`
}

// answer is what the command writes, and its exit code.
type answer struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Code   int    `json:"code"`
}

// call is one command in one container. It ends with the client's connection.
type call struct {
	supervisor
	namespace string
}

// ExecInContainer is remotecommand's executor.
func (c call) ExecInContainer(ctx context.Context, pod, _ string, container string, command []string, _ io.Reader, stdout, stderr io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	said, err := c.ask(ctx, question{Namespace: c.namespace, Pod: pod, Container: container, Command: command})
	if err != nil {
		return err
	}
	if tty {
		stderr = stdout // a terminal has one stream
	}
	for stream, text := range map[io.WriteCloser]string{stdout: said.Stdout, stderr: said.Stderr} {
		if stream != nil && text != "" {
			if _, err := io.WriteString(stream, text); err != nil {
				return err
			}
		}
	}
	if said.Code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", said.Code), Code: said.Code}
	}
	return nil
}

func (s supervisor) ask(ctx context.Context, what question) (answer, error) {
	body, err := json.Marshal(what)
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("%s", strings.TrimSpace(string(text)))
	}
	var said answer
	return said, json.Unmarshal(text, &said)
}

// exec serves /exec/NAMESPACE/POD/CONTAINER, where the API server may put the Pod's UID before the container.
func (s supervisor) exec(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) != 4 && len(parts) != 5 {
		http.NotFound(w, r)
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, call{s, parts[1]}, parts[2], "", parts[len(parts)-1], r.URL.Query()["command"], options,
		4*time.Hour, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func main() {
	listen := flag.String("listen", "", "address to listen on")
	certificate := flag.String("tls-cert-file", "", "serving certificate")
	key := flag.String("tls-private-key-file", "", "its key")
	url := flag.String("containers", "", "URL that answers for the containers")
	token := flag.String("token-file", "", "file with the bearer token for it")
	flag.Parse()
	secret, err := os.ReadFile(*token)
	if err != nil {
		log.Fatal(err)
	}
	containers := supervisor{*url, strings.TrimSpace(string(secret))}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/", containers.exec)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	server := &http.Server{
		Addr: *listen, Handler: mux, ReadHeaderTimeout: 30 * time.Second,
		// Streams of SPDY and WebSocket take over their connection, which HTTP/2 has no way to.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	log.Fatal(server.ListenAndServeTLS(*certificate, *key))
}
