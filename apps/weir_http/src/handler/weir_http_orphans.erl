%% @private
%% @doc Ends the processes of requests whose reactor (with TLS: whose connection's process) was killed. One that ends
%% regularly ends them itself.
%%
%% A link or a monitor per request would cost every request. So this process monitors each reactor once. When one dies,
%% it finds the workers of that reactor among all processes of the node by their parent.
-module(weir_http_orphans).
-behaviour(gen_server).

-export([start_link/1]).
-export([watch/0]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% @doc Starts the watcher. Workers: the initial calls of the processes that are to end with their reactor.
-spec start_link(Workers :: [mfa()]) -> {ok, pid()} | {error, term()}.
start_link(Workers) -> gen_server:start_link({local, ?MODULE}, ?MODULE, Workers, []).

%% @doc Registers the calling process with the watcher. Called with every request, but sends only one message to each
%% watcher: after a restart the new one has to be told.
-spec watch() -> ok.
watch() ->
    Watcher = whereis(?MODULE),
    case get(?MODULE) of
        Watcher ->
            ok;
        _ ->
            _ = put(?MODULE, Watcher),
            gen_server:cast(?MODULE, {watch, self()})
    end.

-spec init([mfa()]) -> {ok, [mfa()]}.
init(Workers) -> {ok, Workers}.

-spec handle_call(term(), gen_server:from(), [mfa()]) -> {reply, {error, badarg}, [mfa()]}.
handle_call(_Request, _From, Workers) -> {reply, {error, badarg}, Workers}.

-spec handle_cast({watch, pid()}, [mfa()]) -> {noreply, [mfa()]}.
handle_cast({watch, Parent}, Workers) ->
    _ = monitor(process, Parent),
    {noreply, Workers}.

-spec handle_info(term(), [mfa()]) -> {noreply, [mfa()]}.
handle_info({'DOWN', _Monitor, process, _Parent, normal}, Workers) ->
    {noreply, Workers};
handle_info({'DOWN', _Monitor, process, Parent, _Reason}, Workers) ->
    Parents = more(#{Parent => []}),
    _ = [weir_http_process:client_gone(Pid) || Pid <- processes(), is_of(Parents, Pid, Workers)],
    {noreply, Workers};
handle_info(_Message, Workers) ->
    {noreply, Workers}.

%% If one reactor was killed, others may have been too.
more(Parents) ->
    receive
        {'DOWN', _Monitor, process, Parent, _Reason} -> more(Parents#{Parent => []})
    after 0 -> Parents
    end.

is_of(Parents, Pid, Workers) ->
    case process_info(Pid, parent) of
        %% Other children of the reactor were started by handlers and are left alone.
        {parent, Parent} when is_map_key(Parent, Parents) ->
            lists:member(proc_lib:translate_initial_call(Pid), Workers);
        _ -> false
    end.
